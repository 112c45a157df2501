"""A request that is not done, and why."""

from http import HTTPStatus

from voicegate.protocol.dialects.one_shot import Problem


class Refused(Exception):
    def __init__(self, problem: Problem, status: HTTPStatus | None = None) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.status = problem.status if status is None else status
