"""Text as agents write it, by kind; in each kind with text that only looks like it. None of these is in the table of
readings."""

import pytest

from voicegate.engine.text.normalize import speakable

COUNTS_AND_YEARS = [
    ("In 1984 books were burned.", "In nineteen eighty-four books were burned."),
    ("By 2030 emissions fall.", "By twenty thirty emissions fall."),
    (
        "The 1999 albums and the 2008 elections",
        "The nineteen ninety-nine albums and the two thousand and eight elections",
    ),
    (
        "It cost 1999 dollars in 1999.",
        "It cost one thousand nine hundred and ninety-nine dollars in nineteen ninety-nine.",
    ),
    ("Over 2020 patients were seen.", "Over two thousand and twenty patients were seen."),
    ("In 1999 was a war", "In nineteen ninety-nine was a war"),
]
MONEY = [
    ("Rs.1,50,000 or 15 lakh?", "one lakh fifty thousand rupees or fifteen lakh?"),
    ("₹500 crore", "five hundred crore rupees"),
    ("CA$45.50, or US$33", "forty-five Canadian dollars and fifty cents, or thirty-three dollars"),
    ("AU$20 or CN¥300", "twenty Australian dollars or three hundred Chinese yuan"),
    ("€1.299,00", "one thousand two hundred and ninety-nine euros"),
    ("5.000.000 users", "five million users"),
    ("the EUR/USD rate", "the E U R U S D rate"),
    ("TRY 5 ALL 3", "try five all three"),
    ("one RM 5", "one R M five"),
]
SHORT_DATES = [
    ("Available: 6/1, 6/2 and 6/3.", "Available: June first, June second and June third."),
    ("Rent is due 1/1 and 2/1.", "Rent is due January first and February first."),
    ("We'll ship it 11/30.", "We'll ship it November thirtieth."),
    ("Let's meet 5/6 or 5/7 at noon.", "Let's meet May sixth or May seventh at noon."),
    ("Come 3/4 at 5pm", "Come March fourth at five P M"),
    ("His time is 9/10 of mine.", "His time is nine tenths of mine."),
    ("The odds are 7/2.", "The odds are seven over two."),
    ("The meeting is 3/4 full", "The meeting is three quarters full"),
]
CODES = [
    ("Model ABC-1234X", "Model A B C, one two three four X"),
    ("H264, PS5, MP4, B12, K9", "H two six four, P S five, M P four, B twelve, K nine"),
    ("PNR: Q4XZ7T", "P N R: Q four X Z seven T"),
    ("0xFF and 3f2a9bc0", "zero X F F and three F two A nine B C zero"),
    ("COVID19 NASA2024", "covid nineteen nasa twenty twenty-four"),
    ("2FA code 55-21-09", "two F A code five five, two one, zero nine"),
    ("$7B and a 7B model", "seven billion dollars and a seven B model"),
    ("5m people, a 50m pool", "five million people, a fifty meters pool"),
    ("2x4, 3 x 4, 10x faster", "two by four, three by four, ten times faster"),
    ("PO #88213, issue #42, #MeToo", "P O number eight eight two one three, issue number forty-two, hashtag MeToo"),
    ("The V8, v3.1, version V2.0", "The V eight, version three point one, version two point zero"),
    ("Form 1099-INT, COVID-19, UTF-8", "Form ten ninety-nine int, covid nineteen, U T F eight"),
    ("Call 212.555.0187 x23", "Call two one two, five five five, zero one eight seven extension twenty-three"),
]


@pytest.mark.parametrize(("text", "spoken"), [*COUNTS_AND_YEARS, *MONEY, *SHORT_DATES, *CODES])
def test_what_agents_write(text: str, spoken: str) -> None:
    assert speakable(text) == spoken
    assert speakable(spoken) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("₹5,00,000和CA$1.2M", "五十万卢比和一百二十万加元"),
        ("2/14可以吗？3/4的票", "二月十四日可以吗？四分之三的票"),
        ("型号AB12-3456", "型号AB一二杠三四五六"),
        ("订单#A10293，#1选手", "订单A一零二九三，第一选手"),
        ("拨打+1 (415) 555-2671", "拨打加幺，四幺五，五五五，二六七幺"),
        ("10 x 10", "十乘十"),
        ("转801，转1.5万", "转八零幺，转一点五万"),
        ("5mg/kg，5m/s", "五毫克每公斤，五米每秒"),
    ],
)
def test_chinese(text: str, spoken: str) -> None:
    assert speakable(text, "zh") == spoken
