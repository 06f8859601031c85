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
dlc1,u1,4,32,128,SFT,COMPLETED,2023-03-01 09:12:34+08:00,2023-03-01 09:12:34+08:00,2023-03-01 10:12:34+08:00,3600,0,9
dlc2,u2,1,1,4,Evaluation,FAILED,2023-03-01 01:12:44+00:00,2023-03-01 01:12:44+00:00,2023-03-01 01:13:14+00:00,30,0,30
dlc3,u2,1,0,4,Other,COMPLETED,2023-03-01 09:00:00+08:00,2023-03-01 09:00:00+08:00,2023-03-01 09:00:30+08:00,30,0,0
dlc4,u2,1,4,4,Debug,CANCELLED,2023-03-01 09:20:00+08:00,,2023-03-01 09:20:30+08:00,0,30,0
"""

# The layout of trace_kalos.csv, whose duration counts from submission: 10 s in the queue and 8 s of run time make 18.
KALOS = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,\
fail_time,stop_time,duration,queue,gpu_time
dlc5,u1,8,64,960,1000,100.0,Other,FAILED,2023-05-17 10:00:00+00:00,2023-05-17 10:00:10+00:00,\
2023-05-17 10:00:18+00:00,2023-05-17 10:00:18+00:00,,18,10.0,1152.0
dlc6,u1,1,8,96,1000,100.0,Pretrain,RUNNING,2023-05-17 11:00:00+00:00,2023-05-17 11:05:00+00:00,,,,,300.0,
dlc7,u2,1,8,96,1000,100.0,Debug,CANCELLED,2023-05-17 11:30:00+00:00,,2023-05-17 11:31:00+00:00,,\
2023-05-17 11:31:00+00:00,60,,480.0
dlc8,u2,1,2,96,1000,100.0,Evaluation,COMPLETED,2023-05-17 12:00:00+00:00,2023-05-17 12:10:00+00:00,\
2023-05-17 13:10:00+00:00,,,4200,600.0,8400.0
"""

LUCID = """\
job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue,dataset,model,\
batchsize,amp,speed,gpu_util,gmem_util,gmem
7,uA,vcX,train,1,4,1,COMPLETED,2020-09-01 00:00:10,2020-09-01 00:00:10,2020-09-01 00:10:10,600,0,CIFAR-10,ResNet18,\
64,0,3711.9,80.6,47.0,2660.0
8,uB,vcY,train,8,32,1,FAILED,2020-09-01 00:00:00,2020-09-01 00:00:30,2020-09-01 00:01:00,30,30,ImageNet,ResNet50,\
32,1,670.6,95.8,67.5,3838.0
9,uB,vcY,prep,0,32,1,COMPLETED,2020-09-01 00:00:00,2020-09-01 00:00:30,2020-09-01 00:01:00,30,30,,,,,,,,
"""

TIRESIAS = """\
job_id,num_gpu,submit_time,iterations,model_name,duration,interval
0,1,0,700,vgg19,190,25
1,8,25,140,resnet50,150,30
2,4,55,160,alexnet,120,20
"""

MURI = """\
job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,\
resource_time_1,resource_time_2,priority
0,4,0,5000,bert,4,950000,12000,190,0.5,163,18,0
1,8,12000,1000,gpt2,4,437000,9000,437,0.6,419,49,1
"""

ELASTICFLOW = """\
job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort
5f2e-a,1000,3000,deepspeech2,1700,32,1,500,0
5f2e-b,1010,9000,gpt2,1500,128,8,900,1
5f2e-c,1020,9000,bert,1900,64,4,800,0
"""

GAVEL = (
    "LM (batch size 10)\tpython3 main.py --batch_size 10\tlanguage_modeling\t--steps\t1\t800\t1\t1\t-1.000000\t0\n"
    "ResNet-18 (batch size 32)\tpython3 main.py -b 32\timage_classification\t--num_steps\t1\t6000\t2\t5\t2.0\t30\n"
    "A3C\tpython3 main.py --workers 4\trl\t--max-steps\t0\t70\t1\t1\t-1.000000\t45.5\n"
)
THROUGHPUTS = json.dumps(
    {
        "v100": {
            "('LM (batch size 10)', 1)": {"null": 80.0, "('A3C', 1)": [40.0, 3.5]},
            "('ResNet-18 (batch size 32)', 1)": {"null": 30.0},
            "('ResNet-18 (batch size 32)', 2)": {"null": 60.0},
            "('A3C', 1)": {"null": 7.0},
        },
        "k80": {"('LM (batch size 10)', 1)": {"null": 8.0}, "('A3C', 1)": {"null": 0.7}},
    }
)
SHOCKWAVE = (
    "LM (batch size 10)\tpython3 main.py --data %s/w2 --batch_size 10\tlanguage_modeling\t--steps\t1\t99999\t1\tgns\t1"
    "\t-1.000000\t1400\t0\n"
    "ResNet-18 (batch size 32)\tpython3 main.py -b 32\timage_classification\t--num_steps\t1\t6000\t4\tstatic\t1"
    "\t-1.000000\t700\t60\n"
)

SACCT = """\
JobID|JobName|User|Account|Partition|Submit|Start|End|Elapsed|State|AllocTRES|ReqTRES
12|train "a|ann|vision|gpu|2024-03-01T10:00:00|2024-03-01T10:01:00|2024-03-02T11:01:01|1-01:00:01|COMPLETED|\
billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1|billing=8,cpu=8,gres/gpu=4,mem=64G,node=1
12.batch|batch||vision||2024-03-01T10:01:00|2024-03-01T10:01:00|2024-03-02T11:01:01|1-01:00:01|COMPLETED|cpu=8,gres/gpu=4|
12.extern|extern||vision||2024-03-01T10:01:00|2024-03-01T10:01:00|2024-03-02T11:01:01|1-01:00:01|COMPLETED|cpu=8|
13_3|sweep|bob|nlp|gpu-long|2024-03-01T10:00:30|2024-03-01T10:00:30|2024-03-01T10:05:30|00:05:00|FAILED|\
cpu=4,gres/gpu:v100=1,gres/gpu:t4=1,mem=8G,node=1|
14|prep|bob|nlp|cpu|2024-03-01T09:00:00|2024-03-01T09:00:30|2024-03-01T09:05:30|00:05:00|COMPLETED|cpu=4,mem=8G,node=1|
15|wait|bob|nlp|gpu|2024-03-01T12:00:00|Unknown|Unknown|00:00:00|PENDING||cpu=4,gres/gpu=1
16|live|bob|nlp|gpu|2024-03-01T12:00:00|2024-03-01T12:00:10|Unknown|00:30:00|RUNNING|cpu=4,gres/gpu=1|cpu=4,gres/gpu=1
17|gone|bob|nlp|gpu|2024-03-01T12:00:00|None|2024-03-01T12:01:00|00:00:00|CANCELLED by 1007||cpu=4,gres/gpu=1
"""

PLAIN = """\
job_id,num_gpus,submit_time,duration,model
0,1,0,3600,resnet50
1,2,60,1800,vgg19
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


def workload(name: str, created: str, admitted: str | None, finished: str | None, gpus: int) -> dict[str, object]:
    """A Kueue workload of one pod set with two pods."""
    times = (("QuotaReserved", admitted), ("Admitted", admitted), ("Finished", finished))
    conditions = [{"type": t, "status": "True", "lastTransitionTime": when, "reason": t} for t, when in times if when]
    resources = {"requests": {"cpu": "8", "nvidia.com/gpu": str(gpus)}}
    pods = {"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "c", "resources": resources}]}}}
    usage = {"name": "main", "count": 2, "resourceUsage": {"cpu": "16", "nvidia.com/gpu": str(2 * gpus)}}
    status: dict[str, object] = {"conditions": conditions}
    if admitted:
        status["admission"] = {"clusterQueue": "team-a", "podSetAssignments": [usage]}
    about = {"name": name, "namespace": "vision", "creationTimestamp": created, "uid": f"uid-{name}"}
    spec = {"queueName": "user-queue", "priority": 10, "podSets": [pods]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": about, "spec": spec, "status": status,
    }  # fmt: skip


KUEUE = "".join(
    json.dumps(line) + "\n"
    for line in (
        workload("job-a", "2024-05-01T10:00:30Z", "2024-05-01T10:05:00Z", "2024-05-01T11:05:00Z", 4),
        workload("job-b", "2024-05-01T10:00:00Z", "2024-05-01T10:00:10Z", "2024-05-01T10:10:10Z", 1),
        workload("job-c", "2024-05-01T12:00:00Z", "2024-05-01T12:00:10Z", None, 1),
        workload("job-d", "2024-05-01T12:00:00Z", None, None, 1),
        workload("job-e", "2024-05-01T12:00:00Z", "2024-05-01T12:00:10Z", "2024-05-01T12:10:10Z", 0),
    )
)

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
    "lucid": LUCID,
    "tiresias": TIRESIAS,
    "gavel": SHOCKWAVE,
    "sacct": SACCT,
    "kubernetes": KUEUE,
    "plain": PLAIN,
}
