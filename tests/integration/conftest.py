"""Libraries that support several frameworks, each function in a line: `pytest tests/integration`.

The run of the repository's own tests leaves this folder out. `nox -s integration` installs the
libraries that these tests are about.
"""

import os

os.environ["SCIPY_ARRAY_API"] = "1"  # read by SciPy when it is imported
