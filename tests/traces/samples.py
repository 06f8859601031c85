"""Small files of every public format, made by us in the shape of the published ones."""

from __future__ import annotations

import json
from pathlib import Path

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"

OWN = """\
job_id,submit_s,gpus,duration_s
a,0,1,60
b,5.5,4,120.25
c,7,2,30
"""

PHILLY_CSV = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,8,23608.0,6214e9
2017-10-09 07:01:55,10.0,2,20.0,6c71a0

"""

SIA_PHILLY = """\
job_id,num_gpus,submit_time,duration,model
0,1,98,1481.0,vgg19
1,12,115,4037.0,DCGAN
2,4,178,1000,BERT
"""

POLLUX = """\
name,time,application,num_replicas,batch_size
cifar10-0,107,cifar10,6,2048
imagenet-1,110,imagenet,16,3200
ncf-2,135,ncf,1,32768
bert-3,140,bert,2,24
"""

CHRONUS = """\
job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,best_effort,job_type
0,vc_1,4,100,6910,resnet101,211,8,282,10,0,strict
1,vc_2,1,50,8897,vgg16,31,6,88-120,10-5,0,soft
2,vc_2,1,60,7676,alexnet,106,24,241,10,1,best
3,vc_2,0,70,7676,alexnet,106,24,241,10,0,strict
"""

OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,10,1010,20
openb-pod-0001,6000,12288,1,460,V100M16|V100M32,BE,Pending,20,120,
openb-pod-0002,6000,12288,0,0,,LS,Running,30,130,30
openb-pod-0003,6000,12288,8,1000,,Guaranteed,Failed,40,50,50
openb-pod-0004,6000,12288,2,1000,,Burstable,Running,50,150,60
"""

HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
100,uA,vc1,8,32,1,COMPLETED,2020-04-01 00:10:00,2020-04-01 00:11:00,2020-04-01 01:11:00,3600,60
101,uB,vc1,0,4,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:01:00,60,0
102,uA,vc2,1,4,1,CANCELLED,2020-04-01 00:12:00,,2020-04-01 00:13:00,0,60
103,uC,vc2,2,4,1,FAILED,2020-04-01 00:11:30,2020-04-01 00:12:00,2020-04-01 00:12:05,5,30
"""

ACME = """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
dlc1,u1,4,32,128,SFT,COMPLETED,2023-03-01 09:12:34+08:00,2023-03-01 09:12:34+08:00,2023-03-01 10:12:40+08:00,3600,0,9
dlc2,u2,1,1,4,Evaluation,FAILED,2023-03-01 01:12:44+00:00,2023-03-01 01:12:44+00:00,2023-03-01 01:13:14+00:00,30,0,30
dlc3,u2,1,0,4,Other,COMPLETED,2023-03-01 09:00:00+08:00,2023-03-01 09:00:00+08:00,2023-03-01 09:00:30+08:00,30,0,0
dlc4,u2,1,4,4,Debug,CANCELLED,2023-03-01 09:20:00+08:00,,2023-03-01 09:20:30+08:00,0,30,0
"""

ALIBABA_HEADER = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
ALIBABA_ROWS = """\
j1,worker,4.0,Terminated,1000.0,1600.0,600.0,30.0,25.0,MISC
j2,ps,1.0,Terminated,900.0,2000.0,600.0,30.0,,
j2,worker,3.0,Terminated,910.0,1900.0,600.0,30.0,100.0,V100
j3,tensorflow,1.0,Failed,1200.0,1300.0,600.0,30.0,50.0,T4
j4,worker,2.0,Waiting,,,600.0,30.0,100.0,T4
j5,cpu,1.0,Terminated,1200.0,1300.0,600.0,30.0,,
j6,worker,1.0,Failed,1400.0,1400.0,600.0,30.0,150.0,T4
"""
ALIBABA_JOBS = "j1,8f3a,u1,Terminated,1000.0,1600.0\nj2,8f3b,u1,Terminated,900.0,2000.0\n"


def attempt(start: str | None, end: str | None, *gpus_by_node: int) -> dict[str, object]:
    nodes = [{"ip": f"m{i}", "gpus": [f"gpu{g}" for g in range(n)]} for i, n in enumerate(gpus_by_node)]
    return {"start_time": start, "end_time": end, "detail": nodes}


def philly_job(job_id: str, submitted: str | None, *attempts: dict[str, object]) -> dict[str, object]:
    return {
        "status": "Pass", "vc": "ee9e8c", "jobid": job_id, "attempts": list(attempts),
        "submitted_time": submitted, "user": "ce2a4f",
    }  # fmt: skip


PHILLY_JSON = json.dumps(
    [
        philly_job(
            "app_2", "2017-10-07 01:00:00",
            attempt("2017-10-07 01:01:00", "2017-10-07 01:02:00", 4, 4),
            attempt("2017-10-07 01:05:00", "2017-10-07 01:05:30", 8),
        ),
        philly_job("app_1", "2017-10-07 00:59:00", attempt("2017-10-07 01:00:00", "2017-10-07 01:00:10", 1)),
        philly_job("app_3", "2017-10-07 00:00:00"),
        philly_job("app_4", "2017-10-07 00:00:00", attempt("None", "None")),
        philly_job("app_5", "2017-10-07 02:00:00", attempt("2017-10-07 02:00:00", None, 2)),
    ]
)  # fmt: skip

EVERY_FORMAT = {
    "fairlead": OWN,
    "philly-csv": PHILLY_CSV,
    "sia-philly": SIA_PHILLY,
    "pollux": POLLUX,
    "chronus": CHRONUS,
    "openb": OPENB,
    "helios": HELIOS,
    "acme": ACME,
    "alibaba-2020": ALIBABA_ROWS,
    "philly-json": PHILLY_JSON,
}
