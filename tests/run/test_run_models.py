from __future__ import annotations

from posttrain.run.models import seedling_config
from posttrain.run.parts import make_domains
from posttrain.run.train import check


def test_the_domains_have_as_many_demonstrations_as_seedling_is_pretrained_on() -> None:
    config = seedling_config()
    check(config, make_domains(config.domains))
