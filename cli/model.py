"""`whitney model`: where a model's folder is, for tools that take a folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cli.failures import UsageError


def model(name: str, *, copy_to: Path | None = None) -> int:
    """Print the Hugging Face folder of a model, fetched or built at first use.

    It is what the gateway trains on, so it is the base that an exported adapter fits. transformers loads it by path.

    Parameters
    ----------
    name
        smollm2-135m-instruct, tiny, or a folder of your own.
    copy_to
        Copy the model there, into a folder that is not there yet, and print that one.
    """
    import models

    folder = models.resolve(name, progress=lambda sentence: print(sentence, file=sys.stderr)).path
    if copy_to is not None:
        try:
            folder = Path(shutil.copytree(folder, copy_to)).resolve()
        except FileExistsError:
            raise UsageError(f"--copy-to {copy_to} is there already: name a folder that is not") from None
        except (OSError, shutil.Error) as error:
            raise UsageError(f"--copy-to {copy_to} cannot be written: {error}") from error
    print(folder)
    return 0
