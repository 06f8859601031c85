"""Lightning and Hugging Face's Trainer themselves: stopped in the middle, then resumed to the end."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.job import place
from tests.job.conftest import Script, lines

EPOCHS = 6

LIGHTNING = """
import time, torch, pytorch_lightning as lightning
from fairlead.job.lightning import FairleadCallback

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, at):
        time.sleep(0.05)
        loss = self.layer(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss
    def on_train_epoch_end(self):
        print("epoch", self.current_epoch + 1, flush=True)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

fairlead = FairleadCallback()
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4)), batch_size=4)
trainer = lightning.Trainer(
    max_epochs=EPOCHS, callbacks=[fairlead], default_root_dir="root", accelerator="cpu", devices=1,
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), data, ckpt_path=fairlead.resume_from(trainer))
"""

HUGGINGFACE = """
import os, time, torch
from transformers import Trainer, TrainingArguments, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from fairlead.job.huggingface import FairleadCallback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels=None):
        time.sleep(0.05)
        y = self.layer(x)
        return {"loss": (y - labels).square().mean(), "logits": y}

class Saying(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        print("epoch", state.epoch, flush=True)

os.makedirs("root", exist_ok=True)
data = [{"x": torch.randn(4), "labels": torch.zeros(1)} for _ in range(32)]
args = TrainingArguments("root", num_train_epochs=EPOCHS, per_device_train_batch_size=4, save_strategy="no",
                         report_to=[], disable_tqdm=True, use_cpu=True, logging_steps=4)
trainer = Trainer(Model(), args, train_dataset=data, callbacks=[Saying(), FairleadCallback()])
trainer.train(resume_from_checkpoint=get_last_checkpoint("root"))
"""


@pytest.mark.parametrize(
    ("code", "needs"),
    [(LIGHTNING, ("torch", "pytorch_lightning")), (HUGGINGFACE, ("torch", "transformers", "accelerate"))],
    ids=["lightning", "huggingface"],
)
def test_a_training_is_stopped_and_goes_on_later(
    start: Callable[..., Script], tmp_path: Path, code: str, needs: tuple[str, ...]
) -> None:
    absent = [name for name in needs if importlib.util.find_spec(name) is None]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")
    env = {place.ID: "7", place.NUM_GPUS: "1", place.STOP: str(tmp_path / "stop"), "CUDA_VISIBLE_DEVICES": ""}
    code = code.replace("EPOCHS", str(EPOCHS))

    first = start("-c", code, **env, **{place.ATTEMPT: "1", place.REPORT: str(tmp_path / "first")})
    first.wait_for("epoch 2")
    first.terminate()
    assert first.wait() == 0
    told = lines(tmp_path / "first")
    done = [line["epoch"] for line in told if "epoch" in line]
    assert done == list(range(1, len(done) + 1))
    assert 2 <= len(done) < EPOCHS
    assert all(line["of"] == EPOCHS for line in told if "epoch" in line)
    assert not any("finished" in line for line in told)

    second = start("-c", code, **env, **{place.ATTEMPT: "2", place.REPORT: str(tmp_path / "second")})
    assert second.wait() == 0
    told = lines(tmp_path / "second")
    assert [line["epoch"] for line in told if "epoch" in line] == list(range(len(done) + 1, EPOCHS + 1))
    assert any("finished" in line for line in told)
