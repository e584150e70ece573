"""The hook that runs a pod's command as a real process on this machine (the agent that pulls models)."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

MESSAGE_LIMIT = 4096  # bytes of a termination message, as Kubernetes has it
STOP_SECONDS = 2.0


class Process:
    """One running command. Its output goes to ``on_output``, its end to ``on_exit(code, message)``."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        on_output: Callable[[str], None],
        on_exit: Callable[[int, str], None],
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sandbox-pod-")
        self._note = Path(self._folder.name, "termination-log")
        self._note.touch()  # as the kubelet does: a program need only find it and write
        self._on_output, self._on_exit = on_output, on_exit
        self._child = subprocess.Popen(  # noqa: S603  the very purpose; the API hands out tokens to its owner only
            argv,
            env={"PATH": os.environ.get("PATH", ""), **env, "TERMINATION_LOG": str(self._note)},
            cwd=self._folder.name,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._follow, name=f"process-{self._child.pid}", daemon=True).start()

    def _follow(self) -> None:
        for line in self._child.stdout or ():
            self._on_output(line)
        code = self._child.wait()
        message = self._note.read_text()[:MESSAGE_LIMIT] if self._note.exists() else ""
        self._folder.cleanup()
        self._on_exit(code if code >= 0 else 128 - code, message)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where it does not end within two seconds. What it still says is not heard."""
        self._on_output = lambda line: None
        self._child.terminate()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()


class ProcessRunner:
    """Starts commands of containers. ``paths`` maps folders inside the image to folders of this machine.

    A process may write its last word to the file named by ``$TERMINATION_LOG``; in a real container that is
    ``/dev/termination-log``.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = dict(paths)

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        on_output: Callable[[str], None],
        on_exit: Callable[[int, str], None],
    ) -> Process:
        """Run the command. OSError where it cannot be started."""
        return Process([self._local(part) for part in argv], env, on_output, on_exit)

    def _local(self, part: str) -> str:
        if part in ("python", "python3"):
            return sys.executable
        for inside, outside in self._paths.items():
            if part.startswith(inside):
                return outside + part.removeprefix(inside)
        return part
