"""The pages as Python sees them, and that C sees the same."""

from __future__ import annotations

import ctypes
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.node import shim
from fairlead.node.guard import busy_page, control_page
from fairlead.node.guard.control_page import ControlPage, GpuOrder, UsagePage

PAIRS = {
    "control_page": control_page.ControlLayout,
    "page_gpu": control_page.PageGpu,
    "usage_page": control_page.UsageLayout,
    "usage_gpu": control_page.UsageGpu,
    "usage_slot": control_page.UsageSlot,
    "busy_page": busy_page.BusyLayout,
    "busy_process": busy_page.BusyProcess,
    "busy_mark": busy_page.BusyMark,
}
UUID = "GPU-8e1f5a3c-0d3c-11ef-9f4b-0242ac120002"


def test_c_and_python_agree_on_every_field(tmp_path: Path) -> None:
    compiler = shim.find_compiler()
    if compiler is None:
        pytest.skip("no C compiler: the C layout can't be asked")
    wanted, lines = [], []
    for name, layout in PAIRS.items():
        wanted.append(f"{name} {ctypes.sizeof(layout)}")
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for field, *_ in layout._fields_:
            place = getattr(layout, field)
            wanted.append(f"{name}.{field} {place.offset} {place.size}")
            size = f"sizeof ((struct {name} *)0)->{field}"
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof(struct {name}, {field}), {size});')
    constants = {
        "PAGE_MAGIC": control_page.PAGE_MAGIC,
        "USAGE_MAGIC": control_page.USAGE_MAGIC,
        "PAGE_BYTES": control_page.PAGE_BYTES,
    }
    constants |= {"BUSY_MAGIC": busy_page.BUSY_MAGIC, "BUSY_PROCESSES": busy_page.BUSY_PROCESSES}
    constants |= {"SERVICES": control_page.SERVICES, "SERVICE_NAME": control_page.SERVICE_NAME}
    constants |= {"MAX_GPUS": control_page.MAX_GPUS, "SLOTS": control_page.SLOTS, "PAGE_VERSION": control_page.VERSION}
    for name, value in constants.items():
        wanted.append(f"{name} {value}")
        lines.append(f'printf("{name} %llu\\n", (unsigned long long){name});')
    source = tmp_path / "layout.c"
    body = textwrap.indent("\n".join(lines), "    ")
    source.write_text(f'#include <stddef.h>\n#include <stdio.h>\n#include "page.h"\nint main(void) {{\n{body}\n}}\n')
    folder = Path(shim.__file__).parent
    subprocess.run([compiler, "-std=gnu11", f"-I{folder}", "-o", tmp_path / "layout", source], check=True)
    found = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout.split("\n")
    assert [line for line in found if line] == wanted
    states = re.search(r"enum process_state \{(.*?)\}", (folder / "page.h").read_text())
    assert states is not None
    assert tuple(re.findall(r"STATE_(\w+)", states[1].lower().replace("state_", "STATE_"))) == control_page.STATES


def test_an_order_is_read_back_as_written(tmp_path: Path) -> None:
    order = GpuOrder(0.25, True, 1500, 1980, 0.8, 0.4)
    with ControlPage.create(tmp_path / "page", [UUID]) as made:
        made.write(order, UUID)
        assert made.read(UUID) == order
        with ControlPage.open(tmp_path / "page") as again:
            assert again.read(UUID) == order
    assert (tmp_path / "page").stat().st_size == control_page.PAGE_BYTES
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page"]


@pytest.mark.parametrize("rate_frac", [-0.1, 1.1, float("nan")])
def test_a_rate_outside_0_to_1_is_refused(tmp_path: Path, rate_frac: float) -> None:
    with ControlPage.create(tmp_path / "page") as made, pytest.raises(InputError, match="allowed is 0 to 1"):
        made.write(GpuOrder(rate_frac=rate_frac))


def test_bad_files_and_names_are_told(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"x" * 8192)
    with pytest.raises(InputError, match="no control page"):
        ControlPage.open(tmp_path / "bad")
    with pytest.raises(InputError, match="no usage page"):
        UsagePage(tmp_path / "bad").processes()
    with pytest.raises(InputError, match="shared page"):
        ControlPage.open(tmp_path / "absent")
    with pytest.raises(InputError, match="is no GPU UUID"):
        ControlPage.create(tmp_path / "page", ["GPU-12"])
    with pytest.raises(InputError, match="do not fit"):
        ControlPage.create(tmp_path / "page", [UUID] * 17)
    with ControlPage.create(tmp_path / "page") as made, pytest.raises(InputError, match="has no record"):
        made.write(GpuOrder(), UUID)


def test_a_writer_that_died_while_writing_is_followed_by_a_clean_one(tmp_path: Path) -> None:
    with ControlPage.create(tmp_path / "page") as made:
        made._layout.seq += 1
    with ControlPage.open(tmp_path / "page") as again:
        assert again._layout.seq % 2 == 0
        again.write(GpuOrder(rate_frac=0.5))
        assert again._layout.seq % 2 == 0


def test_uuids_go_both_ways() -> None:
    assert control_page.uuid_text(control_page.uuid_bytes(UUID)) == UUID
