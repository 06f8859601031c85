-- The database of Fairlead 0.1.0 (commit 42ac709): seven jobs in every state, three tokens, on two made-up GPUs.
BEGIN TRANSACTION;
CREATE TABLE attempts (
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        gpus TEXT NOT NULL,
        shared INTEGER NOT NULL,
        sm_share REAL NOT NULL,
        is_over INTEGER NOT NULL DEFAULT 0,
        stopping TEXT NOT NULL DEFAULT '',
        started_at_s REAL,
        ended_at_s REAL,
        exit_code INTEGER,
        reason TEXT NOT NULL DEFAULT '',
        energy_j REAL,
        PRIMARY KEY (job_id, attempt)
    ) STRICT, WITHOUT ROWID;
INSERT INTO "attempts" VALUES(1,1,'[0]',0,1.0,1,'',1.79499011684498643868e+09,1.79499011687226748459e+09,0,'exited',119.688);
INSERT INTO "attempts" VALUES(2,1,'[1]',0,1.0,1,'',1794990117.05069,1.79499011706995368004e+09,1,'exited',0.47);
INSERT INTO "attempts" VALUES(4,1,'[0]',0,1.0,0,'',1.79499011723601174352e+09,NULL,NULL,'',NULL);
INSERT INTO "attempts" VALUES(5,1,'[1]',0,1.0,0,'',1.79499011737735319135e+09,NULL,NULL,'',NULL);
CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at_s REAL NOT NULL,
        what TEXT NOT NULL,
        job_id INTEGER,
        node TEXT NOT NULL DEFAULT '',
        about TEXT NOT NULL DEFAULT ''
    ) STRICT;
INSERT INTO "events" VALUES(1,1.79499011670049142836e+09,'placed',1,'','on node-0:0');
INSERT INTO "events" VALUES(2,1.7949901167368941307e+09,'placed',2,'','on node-0:1');
INSERT INTO "events" VALUES(3,1.79499011676277422898e+09,'cancelled',7,'','cancelled');
INSERT INTO "events" VALUES(4,1.79499011688654255868e+09,'started',1,'node-0','GPU node-0:0');
INSERT INTO "events" VALUES(5,1.79499011711407685282e+09,'started',2,'node-0','GPU node-0:1');
INSERT INTO "events" VALUES(6,1.79499011711589622495e+09,'ended',1,'node-0','GPU node-0:0 exited 0');
INSERT INTO "events" VALUES(7,1.79499011711730599404e+09,'ended',2,'node-0','GPU node-0:1 exited 1');
INSERT INTO "events" VALUES(8,1.79499011712597608559e+09,'finished',1,'','exited');
INSERT INTO "events" VALUES(9,1.79499011712788033483e+09,'parked',2,'','exited');
INSERT INTO "events" VALUES(10,1.79499011712810349465e+09,'placed',4,'','on node-0:0');
INSERT INTO "events" VALUES(11,1.79499011712814068798e+09,'placed',5,'','on node-0:1');
INSERT INTO "events" VALUES(12,1.79499011730192494394e+09,'started',4,'node-0','GPU node-0:0');
INSERT INTO "events" VALUES(13,1.7949901174306416512e+09,'started',5,'node-0','GPU node-0:1');
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
INSERT INTO "facts" VALUES('nodes','{"asleep": [], "waking": [], "rented_s": {}}');
INSERT INTO "facts" VALUES('knowledge','{"policy": "sizing=fixed,ordering=fifo:backfill=greedy,placing=packed,sharing=exclusive,powering=always-on", "stages": "{\"stack\": {\"again\": false}}"}');
INSERT INTO "facts" VALUES('clock','{"now_s": 2.066375325000081, "boot": "572ec998-4d88-4ad8-b610-cd0c6f46c37d", "boot_s": 3644.475008359, "wall_s": 1794990117.4353867}');
CREATE TABLE jobs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        name TEXT NOT NULL,
        request TEXT NOT NULL,
        submit_s REAL NOT NULL,
        submitted_at_s REAL NOT NULL,
        state TEXT NOT NULL,
        wish TEXT NOT NULL DEFAULT '',
        phase TEXT NOT NULL DEFAULT '',
        reason TEXT NOT NULL DEFAULT '',
        detail TEXT NOT NULL DEFAULT '',
        attempt INTEGER NOT NULL DEFAULT 0,
        failures INTEGER NOT NULL DEFAULT 0,
        due_s REAL,
        gpus TEXT NOT NULL DEFAULT '[]',
        shared INTEGER NOT NULL DEFAULT 0,
        sm_share REAL NOT NULL DEFAULT 1.0,
        service TEXT NOT NULL DEFAULT '{}',
        progress TEXT,
        energy_j REAL,
        started_at_s REAL,
        ended_at_s REAL,
        exit_code INTEGER,
        has_logs INTEGER NOT NULL DEFAULT 1
    ) STRICT;
INSERT INTO "jobs" VALUES(1,'root','done','{"command":["true"],"name":"done","cwd":"/tmp"}',1.32038278500021988293e+00,1.79499011668939352035e+09,'finished','','','exited','',1,0,NULL,'[]',0,1.0,'{"since_s": 1.7514462620001723, "banked_gpu_s": 0.4201737450002838, "starts": 1, "first_width": 1, "taken_gpus": 1, "left_width": 1, "alone_epoch_s": null, "failed_epochs": 0}',NULL,119.688,1.79499011684498643868e+09,1.79499011687226748459e+09,0,1);
INSERT INTO "jobs" VALUES(2,'root','bad','{"command":["false"],"name":"bad","cwd":"/tmp","retries":0}',1.33458116200017684604e+00,1.79499011670359134677e+09,'parked','','','exited','',1,1,NULL,'[]',0,1.0,'{"since_s": 1.7514462620001723, "banked_gpu_s": 0.38367882300008205, "starts": 1, "first_width": 1, "taken_gpus": 1, "left_width": 1, "alone_epoch_s": null, "failed_epochs": 0}',NULL,0.47,1794990117.05069,1.79499011706995368004e+09,1,1);
INSERT INTO "jobs" VALUES(3,'root','held','{"command":["true"],"name":"held","deadline_s":3600.0,"cwd":"/tmp","hold":true}',1.3485786390001521795e+00,1.7949901167175886631e+09,'held','','','','',0,0,NULL,'[]',0,1.0,'{}',NULL,NULL,NULL,NULL,NULL,1);
INSERT INTO "jobs" VALUES(4,'root','served','{"command":["sleep","1000"],"name":"served","kind":"service","slo_s":0.05,"cwd":"/tmp"}',1.35616271100025187479e+00,1.79499011672517275813e+09,'running','','','placed','',1,0,NULL,'[0]',0,1.0,'{"since_s": 1.7514462620001723, "banked_gpu_s": 0.0, "starts": 1, "first_width": 1, "taken_gpus": 1, "left_width": 0, "alone_epoch_s": null, "failed_epochs": 0}',NULL,NULL,1.79499011723601174352e+09,NULL,NULL,1);
INSERT INTO "jobs" VALUES(5,'root','runs','{"command":["sleep","1000"],"name":"runs","profile":"BERT","cwd":"/tmp"}',1.37173807099998157355e+00,1.79499011674074864389e+09,'running','','','placed','',1,0,NULL,'[1]',0,1.0,'{"since_s": 1.7514462620001723, "banked_gpu_s": 0.0, "starts": 1, "first_width": 1, "taken_gpus": 1, "left_width": 0, "alone_epoch_s": null, "failed_epochs": 0}',NULL,NULL,1.79499011737735319135e+09,NULL,NULL,1);
INSERT INTO "jobs" VALUES(6,'root','waits','{"command":["true"],"name":"waits","gpus":2,"priority":1,"cwd":"/tmp"}',1.37940927299996474175e+00,1.79499011674841952319e+09,'waiting','','','','',0,0,NULL,'[]',0,1.0,'{}',NULL,NULL,NULL,NULL,NULL,1);
INSERT INTO "jobs" VALUES(7,'root','gone','{"command":["true"],"name":"gone","gpus":2,"cwd":"/tmp"}',1.38174698900002113077e+00,1.79499011675075721737e+09,'cancelled','','','cancelled','',0,0,NULL,'[]',0,1.0,'{"since_s": 1.3817469890000211, "banked_gpu_s": 0.0, "starts": 0, "first_width": 0, "taken_gpus": 0, "left_width": 0, "alone_epoch_s": null, "failed_epochs": 0}',NULL,NULL,NULL,1.79499011676277017593e+09,NULL,1);
CREATE TABLE submissions (user TEXT NOT NULL, key TEXT NOT NULL, job_id INTEGER NOT NULL, PRIMARY KEY (user, key))
        STRICT, WITHOUT ROWID;
INSERT INTO "submissions" VALUES('root','24_J6gLjFPgoP-H3ma6S6tK6QcK3z-8n',7);
INSERT INTO "submissions" VALUES('root','27ctNyVh9eMjnQea3Z6n4rhzEKMvInyB',3);
INSERT INTO "submissions" VALUES('root','5cxe1NRUd_EGoXA6FTxRW5P7QdU6m1F1',1);
INSERT INTO "submissions" VALUES('root','NjekM-F39-whd6C5SwDX8FoUQJYagy0f',2);
INSERT INTO "submissions" VALUES('root','lsjuRPEXgkDHFm0eXCWSj84L5jmyfKUo',5);
INSERT INTO "submissions" VALUES('root','u0H7YO7ZrXV5WUYTGzo2Sv1Ioi2CbVIY',6);
INSERT INTO "submissions" VALUES('root','yCIg9kS4rSxNg_NcR0Jg128nqRUBS9rs',4);
CREATE TABLE tokens (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        role TEXT NOT NULL,
        hash TEXT NOT NULL UNIQUE,
        note TEXT NOT NULL DEFAULT '',
        created_at_s REAL NOT NULL,
        revoked_at_s REAL
    ) STRICT;
INSERT INTO "tokens" VALUES(1,'root','admin','dbcee5b18f64c1b2ff5db2aebe4d037664d415bbd27f41c976edbcadcf3b6cac','of the account that runs the controller',1.79499011536966109276e+09,NULL);
INSERT INTO "tokens" VALUES(2,'ana','user','847a8bc7bdc6e304f7c1f50693f8df5eda55053d2c83d6c79044467e26a9ca25','laptop',1.79499011665661025046e+09,NULL);
INSERT INTO "tokens" VALUES(3,'ben','operator','2fa73557fce782524b9c510f0908c7fecd6ce6d4e797c9a5dbfc723e797d7e40','',1.79499011666412496565e+09,1.79499011668100523953e+09);
CREATE INDEX jobs_with_logs ON jobs (ended_at_s) WHERE has_logs = 1;
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_user ON jobs (user, id);
CREATE INDEX attempts_open ON attempts (is_over) WHERE is_over = 0;
CREATE INDEX events_by_job ON events (job_id, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('tokens',3);
INSERT INTO "sqlite_sequence" VALUES('jobs',7);
INSERT INTO "sqlite_sequence" VALUES('events',13);
COMMIT;
PRAGMA user_version = 1;
