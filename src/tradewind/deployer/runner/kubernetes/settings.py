"""The settings of the Kubernetes runner."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from tradewind import plugins

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
"""The label of a node with its instance type."""


class KubernetesSettings(plugins.Settings):
    """Settings of the Kubernetes runner."""

    kubeconfig: str = Field(
        "", description="The file with the credentials; empty for KUBECONFIG, ~/.kube/config, or a pod's own"
    )
    context: str = Field("", description="The context in it; empty for the current one")
    namespace: str = Field("", description="The namespace of the runs; empty for the context's")
    service_account: str = Field("", description="The account of the pods; empty for one without rights")
    image_pull_secrets: list[str] = Field(
        default_factory=list, description="Secrets with logins for private registries"
    )
    helper_image: str = Field(
        "busybox:1.36-musl", description="An image with a static busybox, for the step before the job"
    )
    queue: str = Field("", description="The local queue of Kueue that the runs wait in; empty for none")
    priority_class: str = Field("", description="The priority class of the pods; empty for the default")
    run_as: int | None = Field(
        None,
        ge=1,
        description="The number of the user that pods run as, without any rights of root, as namespaces with the Pod "
        "Security level `restricted` ask for; without it the images' own users",
    )
    node_selector: dict[str, str] = Field(default_factory=dict, description="Labels that a node must have")
    instance_type: bool = Field(
        False,
        description="Run on nodes labelled with the offer's instance type (node.kubernetes.io/instance-type) only",
    )
    request_share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="The share of the offer's CPUs and memory that a pod requests, for a node keeps some for itself; "
        "the limits are the offer. Without it all of them; with `instance_type`, where a pod has its node alone, 0.7",
    )
    tolerations: list[dict[str, str | int]] = Field(
        default_factory=list, description="Taints that the pods put up with"
    )
    gpu_resource: str = Field("nvidia.com/gpu", description="What the cluster calls a GPU")
    claim: str = Field("", description="A volume claim with the working folder, where that is too large to be sent")
    claim_path: str = Field("", description="The working folder's path in the claim")
    everywhere: bool = Field(
        False,
        description="Start the command on every node of a run, not the first only; JOB_COMPLETION_INDEX tells which",
    )
    load_apart: bool = Field(
        False,
        description="Run load generators (job.load) in a pod of their own, on another node than the application",
    )
    load_node_selector: dict[str, str] = Field(
        default_factory=dict, description="Labels that the node of such a load generator must have"
    )
    grace: float = Field(0.5, ge=0, le=25, description="Seconds between SIGTERM and SIGKILL when a run is ended")
    schedule_seconds: float = Field(600.0, gt=0, description="Seconds in which the cluster must find a node")
    image_seconds: float = Field(
        120.0, gt=0, description="Seconds in which an image must be there once pulling it has failed"
    )
    start_seconds: float = Field(
        900.0, gt=0, description="Seconds beside the time limit after which the cluster ends a pod"
    )
    disk_gib: float = Field(
        20.0,
        gt=0,
        description="The most disk of its node that a pod may fill, in GiB: working folder, inputs, outputs and logs; "
        "a volume claim does not count",
    )
    ttl_seconds: int = Field(86400, ge=60, description="Seconds that an ended run is kept if no controller settles it")
    output_bytes: int = Field(
        5 * 2**20,
        gt=0,
        le=7 * 2**20,
        description="The most that a run may bring back, compressed, in bytes; it comes through the pod's log",
    )

    @model_validator(mode="after")
    def _one_instance_type(self) -> Self:
        if self.instance_type and (named := self.node_selector.get(INSTANCE_TYPE)):
            raise ValueError(
                f"node_selector: {INSTANCE_TYPE}: {named} and instance_type: true, which sets it for each offer: "
                "leave one out"
            )
        return self

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.load_node_selector and not self.load_apart:
            raise ValueError("load_node_selector is for load_apart: true: add that, or leave load_node_selector out")
        if self.load_apart and self.queue:
            raise ValueError("load_apart: true and queue, whose Jobs Kueue starts by itself: leave one out")
        return self
