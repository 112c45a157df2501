"""How what an installation lacks is installed: by wheels, as README has it.

Never by this distribution's name: on the public index that is another project's, and pip would put it in our place.
"""


def install_command(extras: str) -> str:
    return (
        f'`pip install dist/voicegate_tiny_model-*.whl "$(ls dist/voicegate-*.whl)[{extras}]"` where `make wheels` ran'
    )
