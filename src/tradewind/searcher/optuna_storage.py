"""Optuna's trials in memory, in a storage of which copies can be had at little cost."""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence
from datetime import datetime
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState


class ForkedStorage(BaseStorage):
    """Keeps one study; `fork` gives another storage that begins with what is in this one.

    A trial is never changed but replaced, as in Optuna's own storage in memory, so that copies share those that have
    ended. Where that one copies each trial that it is given, this one takes it as it is.
    """

    def __init__(self) -> None:
        self._name: str | None = None
        self._directions: list[StudyDirection] = []
        self._user_attrs: dict[str, Any] = {}
        self._system_attrs: dict[str, Any] = {}
        self._trials: list[FrozenTrial] = []

    def fork(self) -> ForkedStorage:
        """A storage that has all of this one; what is written to it afterwards is in it alone."""
        other = ForkedStorage()
        other._name, other._directions = self._name, list(self._directions)
        other._user_attrs, other._system_attrs = dict(self._user_attrs), dict(self._system_attrs)
        other._trials = list(self._trials)
        return other

    # ------------------------------------------------------------------ the study

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        """Begin the study."""
        if self._name is not None:
            raise DuplicatedStudyError
        self._name, self._directions = study_name or "", list(directions)
        return 0

    def delete_study(self, study_id: int) -> None:
        """Forget the study."""
        self._check(study_id)
        self.__dict__.update(ForkedStorage().__dict__)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """Set an attribute of the study."""
        self._check(study_id)
        self._user_attrs = {**self._user_attrs, key: value}

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Set an attribute of the study that samplers see."""
        self._check(study_id)
        self._system_attrs = {**self._system_attrs, key: value}

    def get_study_id_from_name(self, study_name: str) -> int:
        """The study's number, which is 0."""
        if study_name != self._name:
            raise KeyError(study_name)
        return 0

    def get_study_name_from_id(self, study_id: int) -> str:
        """The study's name."""
        self._check(study_id)
        return self._name or ""

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """The direction of the objective: minimise or maximise."""
        self._check(study_id)
        return self._directions

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """The study's attributes."""
        self._check(study_id)
        return self._user_attrs

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """The study's attributes that samplers see."""
        self._check(study_id)
        return self._system_attrs

    def get_all_studies(self) -> list[Any]:
        """The study, as Optuna lists studies."""
        from optuna.study._frozen import FrozenStudy

        if self._name is None:
            return []
        attrs = (copy.deepcopy(self._user_attrs), copy.deepcopy(self._system_attrs))
        return [FrozenStudy(self._name, None, *attrs, study_id=0, directions=self._directions)]

    def _check(self, study_id: int) -> None:
        if study_id != 0 or self._name is None:
            raise KeyError(study_id)

    # ------------------------------------------------------------------ trials

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Add a trial; the template, where there is one, becomes it."""
        self._check(study_id)
        number = len(self._trials)
        trial = template_trial or FrozenTrial(
            number=number,
            state=TrialState.RUNNING,
            value=None,
            datetime_start=datetime.now(),
            datetime_complete=None,
            params={},
            distributions={},
            user_attrs={},
            system_attrs={},
            intermediate_values={},
            trial_id=number,
        )
        trial.number = trial._trial_id = number
        self._trials.append(trial)
        return number

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        """Set a parameter of a trial that has not ended."""
        trial = self._changing(trial_id)
        value = distribution.to_external_repr(param_value_internal)
        trial.params = {**trial.params, param_name: value}
        trial.distributions = {**trial.distributions, param_name: distribution}
        self._trials[trial_id] = trial

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Begin or end a trial; False where it was begun already."""
        trial = self._changing(trial_id)
        if state == TrialState.RUNNING and trial.state != TrialState.WAITING:
            return False
        trial.state = state
        if values is not None:
            trial.values = list(values)
        if state == TrialState.RUNNING:
            trial.datetime_start = datetime.now()
        if state.is_finished():
            trial.datetime_complete = datetime.now()
        self._trials[trial_id] = trial
        return True

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        """Note a value on the way of a trial that has not ended."""
        trial = self._changing(trial_id)
        trial.intermediate_values = {**trial.intermediate_values, step: intermediate_value}
        self._trials[trial_id] = trial

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set an attribute of a trial that has not ended."""
        trial = self._changing(trial_id)
        trial.user_attrs = {**trial.user_attrs, key: value}
        self._trials[trial_id] = trial

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set an attribute, that samplers see, of a trial that has not ended."""
        trial = self._changing(trial_id)
        trial.system_attrs = {**trial.system_attrs, key: value}
        self._trials[trial_id] = trial

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """One trial."""
        if not 0 <= trial_id < len(self._trials):
            raise KeyError(trial_id)
        return self._trials[trial_id]

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        """A trial's id, which is its number."""
        self._check(study_id)
        return self.get_trial(trial_number).number

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """All trials, or those in some states, by number."""
        self._check(study_id)
        found = [trial for trial in self._trials if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def _changing(self, trial_id: int) -> FrozenTrial:
        """A copy of a trial, to be changed and put in its place."""
        trial = self.get_trial(trial_id)
        self.check_trial_is_updatable(trial_id, trial.state)
        return copy.copy(trial)
