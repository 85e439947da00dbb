"""Every error that Tradewind raises on purpose.

The tree, with the exit code that the command line ends with::

    TradewindError                     1
    ├── InputError                     3   something the user wrote is wrong
    │   ├── SpecError                      the job YAML
    │   ├── CatalogueError                 a price list or catalogue CSV
    │   ├── RecordError                    an imported record or recorded-runs CSV
    │   ├── WorkflowError                  a workflow or a plan
    │   ├── ConfigurationError             values that are not in the space
    │   └── FormError                      what was typed into the form of an application
    ├── NoOfferError                   4   no provider sells what was asked for
    ├── BudgetError                    5   the budget does not pay for a single run
    ├── NothingFeasibleError           6   the search ended without a feasible configuration
    ├── JobFailedError                 7   the user's program failed
    ├── InterpretationError            8   its output could not be read
    ├── MissingProgramError            9   a program or package is not installed
    │   └── JobProgramError                the job's own program is not there, or cannot be run
    ├── DeployError                   10   machines could not be made or reached
    │   ├── ArchitectureError              a program or an image is for another processor architecture
    │   ├── CapacityError                  no such machines now, or a quota is used up
    │   ├── CredentialsError               the engine or provider does not know us
    │   ├── ImageError                     a container or machine image is not there
    │   ├── PrerequisiteError         3    an input, a secret, a partition or the like is not there
    │   ├── OfferRefusedError              the provider does not know the instance type, region or template
    │   ├── UnreachableError               a host or an engine does not answer
    │   └── TeardownError             11   machines could not be given back
    ├── StoreError                    12   the store cannot be used
    │   ├── StoreLockedError
    │   ├── StoreFullError
    │   ├── StoreReadOnlyError
    │   ├── StoreCorruptError
    │   ├── StudyBusyError                 another process is running this study
    │   └── StudyNotFoundError
    ├── PluginError                   13   an installed part does not load or is named twice
    ├── FetchError                    14   a price endpoint did not answer as it should
    ├── NoHistoryError                15   nothing is known that a recommendation could be made from
    ├── ServiceError                 16   the service refuses, or does not answer
    │   ├── SignInError                    it does not know who asks
    │   ├── ForbiddenError                 not for this user
    │   ├── NotFoundError                  there is no such thing, or it is somebody else's
    │   ├── ConflictError                  it is not in a state for that, or was changed meanwhile
    │   ├── QuotaError                     the tenant's quota is used up
    │   ├── TooLargeError                  the body of a call is too large
    │   ├── SlowError                      a call did not arrive in time
    │   ├── TooManyError                   asked too often, or too much at once
    │   ├── BusyError                      it has as much to do as it can
    │   └── AwayError                      it does not answer
    ├── LimitReachedError            17   a run was cut short at a limit of time or money
    └── InterruptedSearch            130   Ctrl-C

An error prints as one line: what, where, what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar


def _without_passwords(text: str) -> str:
    """A text without the passwords of the addresses in it; where there can be none, nothing else is loaded."""
    if "://" not in text and "=" not in text and "@" not in text:
        return text
    from tradewind.passwords import hide_passwords

    return hide_passwords(text)


class TradewindError(Exception):
    """The root of all errors raised on purpose.

    No message repeats a password that stands in an address.

    Args:
        message: What is wrong and where, without a final full stop.
        hint: What the user can do about it.
    """

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = _without_passwords(message)
        self.hint = None if hint is None else _without_passwords(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InputError(TradewindError):
    """Something that the user wrote is wrong.

    Args:
        message: What is wrong.
        hint: What to write instead.
        file: The file it stands in.
        line: Its line, from 1.
    """

    exit_code = 3
    code = "input"

    def __init__(
        self, message: str, *, hint: str | None = None, file: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.file = file
        if file is not None and "://" in file:
            from tradewind.passwords import hide_password

            self.file = hide_password(file)
        self.line = line

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        return place + super().__str__()


class SpecError(InputError):
    """The job YAML is wrong."""

    code = "input.spec"


class CatalogueError(InputError):
    """A price list or a catalogue CSV is wrong."""

    code = "input.catalogue"


class RecordError(InputError):
    """An imported record, or a CSV of recorded runs, is wrong."""

    code = "input.record"


class WorkflowError(InputError):
    """A workflow, a plan or a set of machines for one is wrong."""

    code = "input.workflow"


class ConfigurationError(InputError):
    """Values were given that are not in the space."""

    code = "input.configuration"


class FormError(InputError):
    """A value that was typed into the form of an application is wrong.

    Args:
        fields: What is wrong, by field.
    """

    code = "input.form"

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {message}" for name, message in fields.items()))
        self.fields = dict(fields)


class NoOfferError(TradewindError):
    """No provider sells what the configuration asks for."""

    exit_code = 4
    code = "no-offer"


class BudgetError(TradewindError):
    """The budget does not pay for a single run."""

    exit_code = 5
    code = "budget"


class NothingFeasibleError(TradewindError):
    """The search ended and no configuration met the constraints."""

    exit_code = 6
    code = "nothing-feasible"


class JobFailedError(TradewindError):
    """The user's program failed."""

    exit_code = 7
    code = "job-failed"


class InterpretationError(TradewindError):
    """The output of a run could not be read.

    Args:
        reason: One of ``empty``, ``truncated``, ``no-match``, ``not-utf8``, ``not-a-number``, ``too-large``,
            ``missing-file``, ``not-json``, ``exit-code``, ``user-code``.
        message: What is wrong and where.
        hint: What to do.
    """

    exit_code = 8
    code = "interpretation"

    def __init__(self, reason: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class MissingProgramError(TradewindError):
    """A program or an optional package is not installed."""

    exit_code = 9
    code = "missing-program"


class JobProgramError(MissingProgramError):
    """The job's own program is not there, or cannot be run, on a machine or in an image."""

    code = "missing-program.job"


class DeployError(TradewindError):
    """Machines could not be made or reached, or the run could not be started.

    Args:
        message: What is wrong and where.
        hint: What to do.
        retryable: True when it is the infrastructure's fault and another attempt may succeed; as ``passes`` says
            unless given.

    Attributes:
        passes: Whether errors of this kind are of the moment.
        paid_seconds: How long machines were there, at most, that were made in vain and taken back.
    """

    exit_code = 10
    code = "deploy"
    passes: ClassVar[bool] = True

    def __init__(self, message: str, *, hint: str | None = None, retryable: bool | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retryable = self.passes if retryable is None else retryable
        self.paid_seconds = 0.0


class ArchitectureError(DeployError):
    """A program or an image is for another processor architecture than the machine.

    Args:
        message: Which one, and both architectures as far as they are known.
        hint: What to do.
    """

    code = "deploy.architecture"
    passes = False


class CapacityError(DeployError):
    """The provider has no such machines now, or a quota is used up: another zone or offer may do."""

    code = "deploy.capacity"


class CredentialsError(DeployError):
    """The engine or the provider does not know us, or does not let us do this.

    Args:
        message: What was refused, by whom.
        hint: Where credentials are looked for.
    """

    code = "deploy.credentials"
    passes = False


class PrerequisiteError(DeployError):
    """Something that every run of the job needs is missing, or not as it should be: an input, a secret, a partition.

    Args:
        message: What is missing, and where it was looked for.
        hint: What to do.
    """

    exit_code = 3  # what the user wrote names something that is not there
    code = "deploy.prerequisite"
    passes = False


class ImageError(DeployError):
    """A container or machine image is not there, or cannot be used.

    Args:
        message: Which image, and where it was looked for.
        hint: What to do.
    """

    code = "deploy.image"
    passes = False


class OfferRefusedError(DeployError):
    """The provider does not know the instance type, the region or the template that an offer names.

    Args:
        message: What it does not know.
        hint: What to do.
    """

    code = "deploy.offer"
    passes = False


class UnreachableError(DeployError):
    """A host or an engine does not answer."""

    code = "deploy.unreachable"


class TeardownError(DeployError):
    """Machines could not be given back; they may still cost money."""

    exit_code = 11
    code = "teardown"


class StoreError(TradewindError):
    """The store cannot be used."""

    exit_code = 12
    code = "store"


class StoreLockedError(StoreError):
    """Another program holds the database for too long."""

    code = "store.locked"


class StoreFullError(StoreError):
    """The disk under the store, or under the run folders, is full."""

    code = "store.full"


class StoreReadOnlyError(StoreError):
    """The store, or its folder, cannot be written."""

    code = "store.read-only"


class StoreCorruptError(StoreError):
    """The file is not a Tradewind store, or is damaged, or is of a newer version."""

    code = "store.corrupt"


class StudyBusyError(StoreError):
    """Another live process is running this study."""

    code = "store.study-busy"


class StudyNotFoundError(StoreError):
    """The store has no such study."""

    code = "store.study-not-found"


class PluginError(TradewindError):
    """An installed part does not load, is unknown, or its name is taken twice."""

    exit_code = 13
    code = "plugin"


class FetchError(TradewindError):
    """A price endpoint did not answer as it should."""

    exit_code = 14
    code = "fetch"


class NoHistoryError(TradewindError):
    """The store knows nothing that a recommendation could be made from."""

    exit_code = 15
    code = "no-history"


class ServiceError(TradewindError):
    """The service refuses, or does not answer.

    Args:
        message: What it refuses.
        hint: What to do.
        wait: Seconds after which it may be tried again, where that helps.
    """

    exit_code = 16
    code = "service"

    def __init__(self, message: str, *, hint: str | None = None, wait: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.wait = wait


class SignInError(ServiceError):
    """The service does not know who asks: no token, no session, or a wrong password."""

    code = "service.sign-in"


class ForbiddenError(ServiceError):
    """The user may not do what was asked."""

    code = "service.forbidden"


class NotFoundError(ServiceError):
    """There is no such thing, or it is another tenant's."""

    code = "service.not-found"


class ConflictError(ServiceError):
    """The object is not in a state for that, its name is taken, or somebody else has changed it meanwhile."""

    code = "service.conflict"


class QuotaError(ServiceError):
    """The quota of the tenant is used up."""

    code = "service.quota"


class TooManyError(ServiceError):
    """Asked too often, or for too much at once."""

    code = "service.too-many"


class BusyError(ServiceError):
    """The service has as much to do as it can, for all of its users together."""

    code = "service.busy"


class AwayError(ServiceError):
    """The service does not answer at this moment, as while it is started anew."""

    code = "service.away"


class TooLargeError(ServiceError):
    """The body of a call is larger than the server takes.

    Args:
        most: Bytes that it takes.
        hint: Advice for the caller.
    """

    code = "service.too-large"

    def __init__(self, most: int, *, hint: str = "the server's max_body_mib allows no more") -> None:
        super().__init__(f"the body of the call is larger than {most / 2**20:g} MiB", hint=hint)
        self.most = most


class SlowError(ServiceError):
    """The body of a call did not arrive in time."""

    code = "service.slow"


class LimitReachedError(TradewindError):
    """A run was cut short at a limit of time or money, before its program had ended."""

    exit_code = 17
    code = "limit-reached"


class InterruptedSearch(TradewindError):  # noqa: N818  (an interruption is no error of anybody's)
    """The user pressed Ctrl-C; the same command resumes."""

    exit_code = 130
    code = "interrupted"
