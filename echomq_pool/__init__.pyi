# SPDX-License-Identifier: MIT
from echomq_pool.api.events import QueueEvents as QueueEvents
from echomq_pool.api.flow import FlowProducer as FlowProducer
from echomq_pool.api.guard import Lease as Lease
from echomq_pool.api.job import Job as Job
from echomq_pool.api.job import SyncJob as SyncJob
from echomq_pool.api.producers import connect as connect
from echomq_pool.api.queue import Queue as Queue
from echomq_pool.api.sync import SyncQueue as SyncQueue
from echomq_pool.api.sync_flow import SyncFlowProducer as SyncFlowProducer
from echomq_pool.api.sync_guard import SyncLease as SyncLease
from echomq_pool.api.tasks import Task as Task
from echomq_pool.api.tasks import task as task
from echomq_pool.errors import DelayedError as DelayedError
from echomq_pool.errors import InputError as InputError
from echomq_pool.errors import JobCancelled as JobCancelled
from echomq_pool.errors import JobFailed as JobFailed
from echomq_pool.errors import LeaseExpired as LeaseExpired
from echomq_pool.errors import LeaseTaken as LeaseTaken
from echomq_pool.errors import PoolError as PoolError
from echomq_pool.errors import RateLimitError as RateLimitError
from echomq_pool.errors import UnrecoverableError as UnrecoverableError
from echomq_pool.errors import WaitingChildrenError as WaitingChildrenError
from echomq_pool.errors import WaitingError as WaitingError
from echomq_pool.errors import WaitTimeout as WaitTimeout
from echomq_pool.worker import Worker as Worker

__version__: str
