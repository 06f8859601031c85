"""Which jobs are the same program: the name of a job's application, by what its user says or by its command.

What is learnt of an application serves its next job, so jobs of one application should behave alike. Two jobs have one
application if they run the same script of the same folder with the same options that shape the work: the model, the
batch, the precision. Seeds, learning rates, paths and names of runs leave the application as it is. A name belongs to
its user: two users may have an application of one name, and neither learns of the other's.

A fingerprint that tells too much apart costs an observation; one that tells too little apart is noticed, since the jobs
then behave differently. Neither does any harm beyond that.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence

from fairlead.model.profile import GENERIC

_LAUNCHERS = re.compile(
    r"(python|pypy)[0-9.]*|torchrun|accelerate|deepspeed|horovodrun|mpirun|mpiexec|srun|uv|poetry|pipenv|conda|nice"
    r"|nohup|env|time|stdbuf|numactl|taskset|ionice|timeout"
)
"""Programs that run another one, which is what counts."""
_SHELLS = ("sh", "bash", "dash", "zsh")
_SUBCOMMANDS = ("launch", "run", "exec")
"""Of launchers: `accelerate launch`, `uv run`."""
_SCRIPT = re.compile(r".+\.(py|sh|pl|jl|R|lua)", re.ASCII)
_CONFIG = re.compile(r".+\.(ya?ml|json|toml|cfg|ini|gin|py)", re.ASCII)
_ASSIGNMENT = re.compile(r"[+~]*([A-Za-z_][\w./-]*)=(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SHAPE_WORDS = (
    "a accum accumulation activation amp arch architecture attention b backbone batch batchsize bf16 block bs bsz"
    " channels checkpointing compile config context crop data dataset depth dim dims dtype embed embedding experts ffn"
    " fp16 fp32 fp8 half head heads hidden image img imgsize layer layers length lora m mixed model net network"
    " optimizer patch precision quantization quantize resolution seq seqlen sequence task tf32 tokenizer tokens"
    " variant vocab width zero"
)
"""Words in the names of options that change how a job uses a GPU."""
_OTHER_WORDS = (
    "checkpoint ckpt comment date decay device dir directory epoch epochs file folder gamma host id job learning log"
    " logdir logger logging lr master momentum name node notes out output path port project prefix rank"
    " rate report resume root run save seed steps tag tags tensorboard url user wandb warmup world"
)
"""Words that say that an option does not, whatever else its name holds: `--model-dir`, `--dataset-seed`."""
_SHAPE, _NOT_SHAPE = frozenset(_SHAPE_WORDS.split()), frozenset(_OTHER_WORDS.split())
_NAME_LETTERS = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_STEM = 40
_DIGITS = 12
"""Of a fingerprint: among a million applications of one user two meet once in five hundred times."""


def application_of(
    command: Sequence[str],
    cwd: str,
    *,
    application: str = "",
    profile: str = GENERIC.name,
    kind: str = "training",
    batch: int = 0,
) -> str:
    """The name of a job's application: the one that was given, else its profile's, else a fingerprint."""
    if application:
        return application
    if profile.lower() != GENERIC.name:
        return profile
    program, options = _program(list(command), cwd)
    told = json.dumps([program, sorted(options), kind, batch])
    stem = _NAME_LETTERS.sub("-", posixpath.basename(program[-1]))[:_LONGEST_STEM].strip("-.") or "job"
    return f"{stem}-{hashlib.sha256(told.encode(errors='replace')).hexdigest()[:_DIGITS]}"


def _program(words: list[str], cwd: str) -> tuple[list[str], list[list[str]]]:
    """What is run, as words that identify it, and its options that shape the work."""
    words = _unwrapped(words)
    first = words[0]
    if posixpath.basename(first) in _SHELLS:
        line = _after(words, "-c")
        if line is not None:
            return _of_line(line, cwd)
    if _is_launcher(first):
        found = _launched(words[1:])
        if found is None:
            return [cwd, " ".join(words)], []
        kind, at = found
        rest = words[at + 2 :]
        if kind == "module":
            return [cwd, words[at + 1]], list(_shaping(rest))
        if kind == "code":
            return [cwd, words[at + 1], posixpath.basename(first)], list(_shaping(rest))
        first, words = words[at + 1], words[at + 1 :]
    if "/" in first or _SCRIPT.fullmatch(first):
        return [posixpath.normpath(posixpath.join(cwd, first))], list(_shaping(words[1:]))
    return [cwd, first], list(_shaping(words[1:]))


def _is_launcher(word: str) -> bool:
    return _LAUNCHERS.fullmatch(posixpath.basename(word)) is not None


def _unwrapped(words: list[str]) -> list[str]:
    """Without variables set in front, as `env A=1 python train.py` has them."""
    at = 0
    while at < len(words) - 1 and (words[at] == "env" or (at and _ASSIGNMENT.fullmatch(words[at]))):
        at += 1
    return words[at:]


def _launched(words: list[str]) -> tuple[str, int] | None:
    """What a launcher runs: how it is named there, and the place of its name among the launcher's words."""
    for at, word in enumerate(words):
        has_next = at + 1 < len(words)
        if word == "-m" and has_next:
            if _is_launcher(words[at + 1].partition(".")[0]) or words[at + 1].startswith("torch.distributed"):
                continue
            return "module", at + 1
        if word == "-c" and has_next:
            return "code", at + 1
        if _SCRIPT.fullmatch(word) and not word.startswith("-"):
            return "program", at
    plain = (at for at, word in enumerate(words) if not _is_wrapping(word))
    at = next(plain, -1)
    return None if at < 0 else ("program", at)


def _is_wrapping(word: str) -> bool:
    is_value = _NUMBER.fullmatch(word) is not None or _ASSIGNMENT.fullmatch(word) is not None
    return word.startswith("-") or is_value or word in _SUBCOMMANDS or _is_launcher(word)


def _of_line(line: str, cwd: str) -> tuple[list[str], list[list[str]]]:
    """A shell's line: as one command where it is one, else by its text."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = []
    is_plain = bool(words) and not re.search(r"[;&|<>`$(){}\n]", line)
    return _program(words, cwd) if is_plain else ([cwd, line], [])


def _after(words: list[str], option: str) -> str | None:
    at = words.index(option) + 1 if option in words else len(words)
    return words[at] if at < len(words) else None


def _shaping(words: Sequence[str]) -> Iterator[list[str]]:
    """The options that shape the work, each with its value; and plain words that name something."""
    at = 0
    while at < len(words):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else None
        at += 1
        if word.startswith("-") and word != "-":
            name, equals, value = word.lstrip("-").partition("=")
            if not equals and following is not None and _is_value(following):
                value, at = following, at + 1
            if _shapes(name):
                yield [_plain(name), value]
        elif assigned := _ASSIGNMENT.fullmatch(word):
            if _shapes(assigned[1]):
                yield [_plain(assigned[1]), assigned[2]]
        elif not _NUMBER.fullmatch(word) and ("/" not in word or _CONFIG.fullmatch(word)):
            yield ["", word]


def _is_value(word: str) -> bool:
    return not word.startswith("-") or _NUMBER.fullmatch(word) is not None


def _plain(name: str) -> str:
    return name.replace("_", "-").lower()


def _shapes(name: str) -> bool:
    parts = set(re.split(r"[-_./]", _plain(name)))
    return not parts.isdisjoint(_SHAPE) and parts.isdisjoint(_NOT_SHAPE)
