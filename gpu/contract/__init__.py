"""The platform's GPU contract: what it accepts and refuses, once, as checks with a place and a mend.

`check` judges documents, `check_workload` the fields of a form. The rules' source is the contract of the platform
(deploy/policies holds the same as admission policies); package names and sizes are arguments, never written here.
"""

from gpu.contract.documents import check
from gpu.contract.finding import Finding, refused
from gpu.contract.workload import check_workload

__all__ = ["Finding", "check", "check_workload", "refused"]
