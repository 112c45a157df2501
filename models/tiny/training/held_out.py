"""Sentences for evaluation alone: `texts` leaves out every line that holds one of them."""

from typing import Final

STATEMENTS: Final = (
    "The parcel was handed to your neighbor a little after ten this morning.",
    "I checked the calendar, and the blue room is still free on Wednesday afternoon.",
    "Good morning, you have reached the front desk of the riverside clinic.",
    "Your refund has been approved, and the money should be back in four working days.",
    "The bridge is closed tonight, so the driver will take the longer road along the lake.",
    "Rain is likely before noon, but the evening looks dry and clear.",
    "I could not find a booking under that name, so let me try the other spelling.",
    "Press the power button twice, wait for the green light, and then close the lid.",
    "My grandmother planted those apple trees long before the house was built.",
    "The second floor has a quiet reading room with large windows and soft chairs.",
    "Thank you for your patience, I have now changed the address on your account.",
    "The soup needs salt, a squeeze of lemon, and about five more minutes on the stove.",
    "Our last ferry leaves the island at a quarter past nine.",
    "He laughed, put down his hammer, and asked for another glass of water.",
    "You still have three days to return the jacket if it does not fit.",
    "The new teacher speaks slowly, so that everybody in the class can follow.",
    "I have set a reminder for seven thirty, and I will wake you with music.",
    "Most of the snow had melted by the time we reached the village.",
    "Sure, one large coffee, two orange juices, and a cheese sandwich.",
    "The battery is almost empty, so please plug in the charger tonight.",
    "Sarah and Daniel will meet you at the station near the flower shop.",
    "That is a good idea, but it would cost twice as much as the old plan.",
    "The concert was wonderful, although we sat far away from the stage.",
    "Turn right at the church, and you will see the hospital on your left.",
    "Nobody knew the answer, not even the man who had written the question.",
    "Please hold the line while I look for someone who can help you.",
    "Twenty people signed up for the morning class, and only eight for the evening one.",
    "Fresh bread is delivered every day except on public holidays.",
)

QUESTIONS: Final = (
    "Could you spell your last name for me?",
    "Do you want me to send the receipt to your phone?",
    "Is there a table for four near the window?",
    "Would tomorrow after lunch work for you?",
    "Are you calling about the order from last Friday?",
    "Did the technician leave a note at the door?",
    "Have you already tried to restart the computer?",
    "Shall I add a bottle of milk to your shopping list?",
    "Can we move the meeting to the end of the month?",
    "Will your children travel with you this summer?",
    "Is everything all right with your new phone?",
    "Do they know that the museum is closed today?",
)

HELD_OUT: Final = STATEMENTS + QUESTIONS
