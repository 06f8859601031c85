"""What a user asks for: a command and what it needs. Checked here, whichever way it came in."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from fairlead.errors import InputError
from fairlead.live.jobs.applications import application_of
from fairlead.model.catalogue import BUILT_IN, Catalogue
from fairlead.model.job import Job
from fairlead.node.order import check_latency_url

PRIORITIES = {"low": -1, "normal": 0, "high": 1}
MOST_GPUS = 100_000
LIGHT_COMMAND = ("-",)
"""Stands for a command that is not at hand; see `JobRequest.light`."""
_MOST_BYTES = 128 * 1024
"""Of command and environment; the kernel takes more, but not much."""
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("FAIRLEAD_", "LD_PRELOAD", "CUDA_MPS_", "CUDA_VISIBLE_DEVICES")

Name = Annotated[str, StringConstraints(max_length=100)]
Word = Annotated[str, StringConstraints(max_length=_MOST_BYTES)]
Seconds = Annotated[float, Field(gt=0.0, le=1e9, allow_inf_nan=False)]


class JobRequest(BaseModel):
    """One job. `gpus` is what it asks for; with `min_gpus` and `max_gpus` apart its width may be chosen and changed.

    `gpus` below 1 asks for a part of a GPU: it is 1 from then on, and `gpu_frac` that part.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=False)

    command: list[Word] = Field(min_length=1, max_length=4096, description="Words, never a shell line.")
    name: Name = ""
    kind: Literal["training", "service"] = "training"
    gpus: int = Field(default=1, ge=1, le=MOST_GPUS)
    gpu_frac: float = Field(default=1.0, gt=0.0, le=1.0, description="The part of one GPU that it asks for.")
    min_gpus: int | None = Field(default=None, ge=1, le=MOST_GPUS)
    max_gpus: int | None = Field(default=None, ge=1, le=MOST_GPUS)
    memory_mib: float = Field(default=0.0, ge=0.0, le=1e9, allow_inf_nan=False, description="On each GPU; 0: unknown.")
    profile: Name = Field(default="generic", min_length=1)
    application: Name = Field(
        default="", description="The program that it is a run of; empty: by its profile or its command."
    )
    deadline_s: Seconds | None = Field(default=None, description="From submission on.")
    estimate_s: Seconds | None = Field(default=None, description="How long it takes alone on the GPUs asked for.")
    priority: int = Field(default=0, ge=-1000, le=1000, description="low is -1, normal 0, high 1.")
    slo_s: Seconds | None = Field(default=None, description="Of a service: the latency that it must keep.")
    latency_url: Annotated[str, StringConstraints(max_length=2000)] | None = Field(
        default=None, description="Of a service: a page of its own node that tells its latency."
    )
    latency_metric: Annotated[str, StringConstraints(max_length=200, pattern=r"^([A-Za-z_:][A-Za-z0-9_:]*)?$")] = Field(
        default="", description="The Prometheus histogram or summary there, in seconds; empty: the page is a number."
    )
    batch: int = Field(default=0, ge=0, le=10**9)
    cwd: Annotated[str, StringConstraints(max_length=4096)] = "/"
    env: dict[Name, Word] = Field(default_factory=dict, max_length=1000)
    retries: int = Field(default=3, ge=0, le=1000, description="How often it is started again after failing.")
    grace_s: float = Field(default=30.0, ge=0.0, le=86400.0, allow_inf_nan=False)
    hold: bool = False

    @field_validator("name", "profile", "application", "cwd")
    @classmethod
    def _printable(cls, text: str) -> str:
        if _UNPRINTABLE.search(text):
            raise ValueError(f"{text[:40]!r} has characters that cannot be printed")
        return text

    @field_validator("command")
    @classmethod
    def _words(cls, words: list[str]) -> list[str]:
        if not words[0]:
            raise ValueError("its first word, the program, is empty")
        _check_bytes(words)
        return words

    @field_validator("env")
    @classmethod
    def _variables(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name[:40]!r} is no name of a variable")
            if name.startswith(_OURS):
                raise ValueError(f"{name} is set by the scheduler")
        _check_bytes(list(env.values()))
        return env

    @field_validator("latency_url")
    @classmethod
    def _own_page(cls, url: str | None) -> str | None:
        if url is not None:
            try:
                check_latency_url(url)
            except InputError as error:
                raise ValueError(f"{error.message}; {error.hint}") from None
        return url

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, cwd: str) -> str:
        if not PurePosixPath(cwd).is_absolute():
            raise ValueError(f"{cwd!r} is not an absolute path")
        return cwd

    @model_validator(mode="before")
    @classmethod
    def _in_words(cls, found: object) -> object:
        if isinstance(found, dict) and isinstance(found.get("priority"), str):
            word = found["priority"]
            if word not in PRIORITIES:
                raise ValueError(f"priority {word[:40]!r}: expected {', '.join(PRIORITIES)} or a number")
            return {**found, "priority": PRIORITIES[word]}
        return found

    @model_validator(mode="before")
    @classmethod
    def _part(cls, found: object) -> object:
        asked = found.get("gpus") if isinstance(found, dict) else None
        if not isinstance(found, dict) or not isinstance(asked, float) or (asked >= 1.0 and asked.is_integer()):
            return found
        if not 0.0 < asked < 1.0:
            raise ValueError(f"gpus is {asked:g}: a whole number of GPUs, or a part of one, above 0 and below 1")
        if found.get("gpu_frac", asked) != asked:
            raise ValueError(f"gpus is {asked:g} and gpu_frac {found['gpu_frac']}; one is enough")
        return {**found, "gpus": 1, "gpu_frac": asked}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.least_gpus <= self.asked_gpus <= self.most_gpus:
            raise ValueError(f"{self.least_gpus} to {self.most_gpus} GPUs, but {self.asked_gpus} asked for")
        if self.gpu_frac < 1.0 and (self.least_gpus, self.most_gpus) != (1, 1):
            raise ValueError(f"gpu_frac is {self.gpu_frac:g}: who asks for a part of a GPU runs on one")
        if self.kind == "service" and (self.least_gpus, self.most_gpus) != (1, 1):
            raise ValueError("a service runs on one GPU")
        if self.kind != "service" and self.slo_s is not None:
            raise ValueError("slo_s is for services; this is a training job")
        if self.latency_url is not None and self.slo_s is None:
            raise ValueError("latency_url is for services with an SLO: slo_s says which latency is too long")
        if self.latency_metric and self.latency_url is None:
            raise ValueError("latency_metric needs a latency_url: the page that has it")
        return self

    @property
    def least_gpus(self) -> int:
        """Of an elastic job; what it asks for if it is rigid."""
        return self.min_gpus if self.min_gpus is not None else min(self.gpus, self.max_gpus or self.gpus)

    @property
    def most_gpus(self) -> int:
        """The most GPUs of an elastic job; what it asks for if it is rigid."""
        return self.max_gpus if self.max_gpus is not None else max(self.gpus, self.min_gpus or self.gpus)

    @property
    def asked_gpus(self) -> int:
        """Where only bounds were given, its nominal width is the lower one."""
        return self.gpus if "gpus" in self.model_fields_set else max(self.gpus, self.least_gpus)

    @property
    def shown_name(self) -> str:
        """Its name, or what its command is called."""
        return self.name or _UNPRINTABLE.sub("?", PurePosixPath(self.command[0]).name)[:100] or "job"

    def recognised(self) -> JobRequest:
        """With its application named; for a request that still has its command."""
        found = application_of(
            self.command,
            self.cwd,
            application=self.application,
            profile=self.profile,
            kind=self.kind,
            batch=self.batch,
        )
        return self.model_copy(update={"application": found})

    def light(self) -> JobRequest:
        """Without what only its start needs, command and environment: these may be large, and jobs may be many."""
        return self.model_copy(update={"command": list(LIGHT_COMMAND), "env": {}, "name": self.shown_name})

    def job(self, job_id: int, user: str, submit_s: float, catalogue: Catalogue = BUILT_IN) -> Job:
        """The job as policies see it, with the profile that its name stands for."""
        profile = catalogue.profile(self.profile)
        return Job(
            id=job_id,
            name=self.shown_name,
            submit_s=submit_s,
            gpus=self.asked_gpus,
            profile=profile,
            kind=self.kind,
            min_gpus=self.least_gpus,
            max_gpus=self.most_gpus,
            memory_mib=self.memory_mib or profile.memory_mib,
            gpu_frac=self.gpu_frac,
            deadline_s=self.deadline_s,
            priority=self.priority,
            user=user,
            batch=self.batch,
        )


def _check_bytes(words: list[str]) -> None:
    if any("\0" in word for word in words):
        raise ValueError("a word holds the character NUL")
    try:
        size = sum(len(word.encode()) for word in words)
    except UnicodeEncodeError:
        raise ValueError("a word is no valid Unicode") from None
    if size > _MOST_BYTES:
        raise ValueError(f"{size:,} bytes in all; at most {_MOST_BYTES:,}")
