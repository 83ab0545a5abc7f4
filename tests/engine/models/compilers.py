"""What tests of compiled models need of the machine."""

import os
import shutil
import sys

import pytest

_CXX = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
needs_compiler = pytest.mark.skipif(shutil.which(_CXX) is None, reason=f"torch_compile needs {_CXX} (apt install g++)")
