"""Fixtures for pytest: each test gets a server of its own, which is ready in milliseconds."""
import pytest

from . import Server


@pytest.fixture
def kubegc_arguments():
    """Further arguments of `kubegc up`; override it in a module or conftest.py."""
    return []


@pytest.fixture
def kubegc(kubegc_arguments):
    """A running `kubegc.Server`: `kubeconfig`, `url`, `settle()`, `advance()`."""
    with Server(kubegc_arguments) as server:
        yield server


@pytest.fixture
def kubegc_client(kubegc):
    """An `ApiClient` of the package `kubernetes`, as the administrator."""
    try:
        from kubernetes import config
    except ImportError:
        pytest.fail("the fixture kubegc_client needs the package kubernetes: pip install kubernetes", pytrace=False)
    with config.new_client_from_config(kubegc.kubeconfig) as client:
        yield client


@pytest.fixture
def kubegc_clock(kubegc):
    """The collectors' clock: `advance("36h")`, `now()`, `ahead()`."""
    return kubegc.clock


@pytest.fixture
def settle(kubegc):
    """`settle(timeout=10)` returns when nothing is left to do."""
    return kubegc.settle
