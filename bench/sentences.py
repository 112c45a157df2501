"""Everyday sentences for measurements, in the words that the tiny model was trained for; none is in its training text
by intention, none is checked to be absent."""

from typing import Final

EVERYDAY: Final = (
    "The train to the coast leaves at half past seven.",
    "Please put the milk back in the fridge when you are done.",
    "I will call you as soon as the meeting is over.",
    "There is a small bakery on the corner of our street.",
    "Could you tell me where the nearest bank is?",
    "It looks like it is going to rain this afternoon.",
    "We need two more chairs for the dinner tonight.",
    "My brother bought a new car last week.",
    "The children are playing in the garden.",
    "Your order has been sent and will arrive on Monday.",
    "Take the second road on the left after the bridge.",
    "She has been learning to play the piano for years.",
    "The doctor can see you tomorrow morning at nine.",
    "Do not forget to turn off the lights before you go.",
    "I would like a cup of tea with a little sugar.",
    "The library is closed on Sunday but open on Saturday.",
    "He was late because the bus did not come on time.",
    "This is the best soup that I have ever had.",
    "Let us meet in front of the theater at six.",
    "Your table for two is ready, and the coffee is still hot.",
)

SHORT: Final = "Good morning, how can I help you?"

PARAGRAPH: Final = (
    "Good morning, and thank you for calling. Your package left the warehouse yesterday, and it should arrive on "
    "Monday before noon. If nobody is at home, the driver will leave it with a neighbor. Is there anything else that "
    "I can do for you today?"
)
