"""Everyday sentences for measurements, in the words that the tiny model was trained for; none is in its training text
by intention, none is checked to be absent."""

from collections.abc import Mapping
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

# As voice agents write: longer, with commas, questions among them.
AGENT: Final = (
    "I have found three flights to Boston, and the earliest one leaves at seven in the morning.",
    "Would you like me to book the hotel for two nights, or should I look for something closer to the station?",
    "Your account is open now, and you will receive a letter with the details within five days.",
    "I am sorry to hear that, but I can help you to return the shoes and get your money back.",
    "The weather in London will be cold and windy tomorrow, with some rain in the evening.",
    "Before we go on, could you please tell me your name and the number of your order?",
    "There are two ways to fix this problem, and the first one takes only a few minutes.",
    "If you press the green button on the front, the machine will start again by itself.",
    "The museum opens at ten, closes at six, and is free for children on the first Sunday of every month.",
    "That sounds like a good plan, so let me write it down and send it to your office.",
    "What kind of music do you want to hear while you are waiting?",
    "Your next lesson is on Thursday afternoon, and your teacher has asked you to read the second chapter.",
    "I can remind you an hour before the meeting, or on the evening of the day before.",
    "The kitchen is almost ready, but the new window will not be delivered until the end of the week.",
    "Most people take the bus from the airport, because it is cheap and stops right in front of the hotel.",
    "Shall I read the whole message to you, or do you only want to know who sent it?",
    "The doctor said that you should drink more water, eat less salt, and walk for half an hour every day.",
    "We have moved your appointment to Friday at three, as you asked, and sent you a short message about it.",
    "Is it all right if I ask you a few questions about your last visit?",
    "My favorite part of the story is the end, when the old man comes home and finds his dog at the door.",
)

SHORT: Final = "Good morning, how can I help you?"

PARAGRAPH: Final = (
    "Good morning, and thank you for calling. Your package left the warehouse yesterday, and it should arrive on "
    "Monday before noon. If nobody is at home, the driver will leave it with a neighbor. Is there anything else that "
    "I can do for you today?"
)

# Replies of a few words. A model that does not know where its text ends says more than is written here first.
REPLIES: Final = (
    "The coffee is still hot. Good night.",
    "Good morning.",
    "Sure, I can do that.",
    "Thank you for waiting.",
    "Yes, please.",
    "One moment, please.",
    "Hello, how can I help you?",
    "I am sorry to hear that.",
    "Okay, thanks for calling.",
    "See you tomorrow.",
)

BY_NAME: Final[Mapping[str, tuple[str, ...]]] = {"everyday": EVERYDAY, "agent": AGENT, "replies": REPLIES}
