"""Sentences of the bench: as voice agents write, in English and Chinese."""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Texts:
    """By how long they take to say."""

    short: tuple[str, ...]  # a second or two
    sentences: tuple[str, ...]  # 3 to 8 s
    paragraphs: tuple[str, ...]  # about 15 s


ENGLISH: Final = Texts(
    short=(
        "Good morning, how can I help you?",
        "Yes, that works for me.",
        "One moment, please.",
        "I have found your order.",
        "Could you say that again?",
        "Thank you, that is all I need.",
        "Let me have a look at that.",
        "You are welcome, goodbye.",
    ),
    sentences=(
        "I have checked your booking, and both seats are still next to each other.",
        "The next train to the airport leaves from platform four in about ten minutes.",
        "If you tell me your postcode, I can find the shop that is closest to you.",
        "Your parcel was handed to the driver this morning, so it should be with you before lunch.",
        "Would you rather pay for all of it now, or in three parts over the summer?",
        "There is one thing that I would like to check with you before I send the form.",
        "The doctor has time for you on Tuesday afternoon, or early on Thursday if you prefer that.",
        "I understand, and I am sorry that you had to call us twice about the same thing.",
        "You can change the password on the second page, under the picture of the small key.",
        "The room has a view of the lake, a large bed, and a desk where you can work.",
        "It will rain until the evening, but the rest of the week looks warm and dry.",
        "Please hold the button for five seconds until the light on the side turns green.",
        "We close at eight tonight, but the people in the other office are there until ten.",
        "That price includes breakfast, the use of the pool, and a place for your car.",
        "Your contract ends in March, so there is still time to think about the new offer.",
        "I can read the message to you now, or keep it until you are back at home.",
        "Do you want me to call the restaurant and ask for a quiet table near the window?",
        "The card was sent to your old address, which is why it has not arrived yet.",
        "First open the cover on the back, then take out the old battery and wait a minute.",
        "She asked whether you could bring the documents to the meeting on Friday.",
        "Everything is ready for your trip, and you will get the tickets by mail today.",
        "The part that you need is not here, but we can have it in two days.",
        "As far as I can see, the money has left our account and should reach yours tomorrow.",
        "Take the lift to the third floor, turn left, and it is the last door on the right.",
    ),
    paragraphs=(
        "Thank you for waiting. I have spoken with the team that looks after your house, and they can send somebody "
        "tomorrow between nine and eleven. He will call you when he is on his way, so that you do not have to wait at "
        "the door. Is that all right for you?",
        "There are three ways to get there. The bus is the cheapest, but it takes almost an hour and stops in every "
        "village. The train is faster and leaves twice an hour. If you have a lot of bags, I would take a taxi, which "
        "costs about as much as four train tickets.",
        "Here is what I have so far. You want to leave on Friday after work, stay for two nights near the sea, and be "
        "back on Sunday before dinner. I have found a small hotel with a garden that still has a room, and a car that "
        "you can pick up at the station.",
        "The test results are in, and there is nothing that you need to worry about. The doctor would like to see you "
        "again in six months, and until then you should keep taking the small white tablets in the morning. If you "
        "feel dizzy, call us at any time, also at night.",
    ),
)

CHINESE: Final = Texts(
    short=(
        "早上好，请问有什么可以帮您？",
        "好的，没有问题。",
        "请您稍等一下。",
        "我找到您的订单了。",
        "您能再说一遍吗？",
        "谢谢您，再见。",
    ),
    sentences=(
        "您的包裹今天早上已经交给快递员了，中午之前应该可以送到。",
        "下一班去机场的列车大约十分钟以后从四号站台出发。",
        "如果您告诉我您的地址，我可以帮您找到最近的门店。",
        "您想现在一次付清，还是分三次在夏天付完？",
        "医生星期二下午有空，如果您愿意，星期四早上也可以。",
        "非常抱歉，让您为同一件事情打了两次电话。",
        "今天晚上一直会下雨，不过这个星期后面几天都很暖和。",
        "请按住按钮五秒钟，直到旁边的灯变成绿色。",
        "这个价格包括早餐，游泳池和一个停车位。",
        "我可以现在把消息读给您听，也可以等您回家以后再说。",
        "要不要我打电话给餐厅，订一张靠窗的安静的桌子？",
        "坐电梯到三楼，然后左转，右边最后一个门就是。",
    ),
    paragraphs=(
        "感谢您的等待。我已经和负责您家的同事谈过了，他们明天上午九点到十一点之间可以派人过来。"
        "他出发的时候会给您打电话，这样您就不用一直在门口等。您看这样可以吗？",
        "去那里有三种办法。坐公共汽车最便宜，但是差不多要一个小时，而且每个村子都停。"
        "火车快一些，每小时有两班。如果您的行李很多，我建议您坐出租车。",
    ),
)

LANGUAGES: Final = {"en": ENGLISH, "zh": CHINESE}


def words(text: str) -> list[str]:
    """As an agent's tokens come: a word with the blanks before it, or a character with the signs behind it."""
    return re.findall(r"\s*(?:[\u4e00-\u9fff][^\w\s]*|[^\s\u4e00-\u9fff]+)|\s+$", text)


def read_texts(content: str) -> Texts:
    """A user's own, one a line: the shorter third, the middle, the longer third. Raises ValueError for none."""
    lines = sorted({line.strip() for line in content.splitlines() if line.strip()}, key=len)
    if not lines:
        raise ValueError("it holds no text")
    third = len(lines) // 3
    return Texts(tuple(lines[: third + 1]), tuple(lines[third : len(lines) - third]), tuple(lines[-third - 1 :]))
