"""Sentences of voice agents and their users, as a grammar: `{name}` in a rule stands for one of that name's rules."""

import random
import re
from collections.abc import Mapping
from typing import Final

_SLOT: Final = re.compile(r"\{(\w+)\}")

_WORDS: Final[Mapping[str, str]] = {
    "name": "Anna|Ben|Carla|David|Emma|Frank|Grace|Henry|Irene|Jack|Karen|Leo|Maria|Nathan|Olivia|Peter|Quinn|Rachel|"
    "Sam|Teresa|Ursula|Victor|Wendy|Xavier|Yasmin|Zoe|Michael|Julia|Thomas|Laura|Robert|Sophie|James|Elena|George|"
    "Hannah|Martin|Nina|Oscar|Paula|Simon|Tina|William|Alice|Chris|Diana|Edward|Fiona|Gary|Helen|Ian|Jessica|Kevin|"
    "Linda|Mark|Natalie|Owen|Patricia|Richard|Susan|Tony|Vera|Walter|Charlotte|Daniel|Elizabeth|Andrew|Rebecca|"
    "Joseph|Margaret|Steven|Angela|Brian|Catherine|Matthew|Samantha|Jonathan|Caroline|Philip|Monica|Priya|Ahmed|Carlos",
    "surname": "Smith|Johnson|Miller|Davis|Wilson|Taylor|Clark|Lewis|Walker|Young|Hall|King|Wright|Hill|Green|Baker|"
    "Nelson|Carter|Parker|Evans|Collins|Stewart|Morris|Cook|Murphy|Bell|Cooper|Ward|Brooks|Bennett|Gray|Hughes|Foster|"
    "Russell|Hamilton|Graham|Sullivan|Wallace|Jordan|Reynolds|Fisher|Ellis|Harrison|Gibson|Mason|Hunt|Palmer|Garcia",
    "city": "London|Boston|Paris|Chicago|Denver|Berlin|Madrid|Rome|Toronto|Sydney|Dublin|Seattle|Houston|Dallas|Miami|"
    "Atlanta|Vienna|Prague|Lisbon|Oslo|Athens|Tokyo|Delhi|Cairo|Oxford|Bristol|Portland|Phoenix|Detroit|Manchester|"
    "Edinburgh|Brussels|Geneva|Milan|Barcelona|Amsterdam|Stockholm|Helsinki|Warsaw|Budapest|Singapore|San Francisco|"
    "New York|Los Angeles|Washington|Philadelphia|Melbourne|Montreal|Vancouver|Mexico City|Hong Kong|Copenhagen",
    "weekday": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "month": "January|February|March|April|May|June|July|August|September|October|November|December",
    "ordinal": "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth|"
    "fifteenth|eighteenth|twentieth|twenty first|twenty third|twenty fifth|thirtieth|thirty first",
    "digit": "zero|one|two|three|four|five|six|seven|eight|nine",
    "small": "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve",
    "teen": "thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen",
    "tens": "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety",
    "number": "{small}|{small}|{teen}|{tens}|{tens} {digit19}|{digit19} hundred|{digit19} hundred and {tens}|"
    "{small} thousand|a hundred|{digit19} hundred and {tens} {digit19}|{tens} thousand|one point {digit}|a million",
    "digit19": "one|two|three|four|five|six|seven|eight|nine",
    "hour": "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|noon|midnight",
    "clock": "{hour19}|half past {hour19}|quarter past {hour19}|quarter to {hour19}|{hour19} thirty|{hour19} fifteen|"
    "{hour19} forty five|{hour19} o'clock|ten past {hour19}|twenty to {hour19}|{hour19} in the morning|"
    "{hour19} in the afternoon|{hour19} in the evening|noon|midnight|{hour19} a m|{hour19} p m",
    "hour19": "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve",
    "day": "today|tomorrow|tonight|on {weekday}|next {weekday}|this {weekday}|on {weekday} {daypart}|"
    "tomorrow {daypart}|"
    "on the {ordinal}|on the {ordinal} of {month}|on {month} {ordinal}|in {month}|next week|next month|this weekend|"
    "at the end of the week|in two weeks|later today|the day after tomorrow",
    "daypart": "morning|afternoon|evening|night",
    "when": "{day}|at {clock}|{day} at {clock}|before {clock}|after {clock}|around {clock}|until {clock}",
    "money": "{number} dollars|{number} pounds|{number} euros|{small} dollars and {tens} cents|{number} percent|"
    "ninety nine cents|{digit19} dollars {tens} {digit19}",
    "duration": "{small} minutes|{small} hours|{small} days|{small} weeks|{small} months|{small} years|an hour|"
    "half an hour|a few minutes|a couple of days|about a week|{tens} minutes|{tens} {digit19} minutes|a moment",
    "thing": "book|phone|car|house|door|table|window|computer|ticket|letter|package|coffee|sandwich|garden|bicycle|key|"
    "camera|jacket|shirt|lamp|chair|picture|guitar|umbrella|suitcase|watch|mirror|blanket|bottle|printer|keyboard|"
    "screen|charger|cable|battery|blender|oven|kettle|fridge|vacuum|sofa|pillow|carpet|desk|shelf|bag|wallet|passport|"
    "receipt|invoice|contract|report|message|recipe|song|playlist|movie|photo|video|map|menu|present|toy|puzzle|hat",
    "things": "books|phones|chairs|tickets|letters|packages|apples|oranges|flowers|keys|glasses|shoes|pictures|cups|"
    "plates|pencils|bags|batteries|eggs|tomatoes|potatoes|bananas|cookies|questions|answers|options|files|photos|"
    "songs|messages|emails|meetings|flights|rooms|seats|tables|boxes|candles|blankets|towels|bottles|cables|lamps",
    "food": "bread|cheese|soup|salad|chicken|fish|rice|pasta|pizza|butter|honey|chocolate|ice cream|coffee|tea|milk|"
    "orange juice|water|fresh fruit|vegetables|noodles|pancakes|lemon cake|tomato soup|mushrooms|onions|"
    "garlic|olive oil",
    "place": "station|airport|hotel|library|museum|hospital|bank|school|office|park|market|theater|restaurant|church|"
    "pharmacy|bakery|post office|swimming pool|beach|bridge|town hall|university|gym|supermarket|parking lot|harbor",
    "person": "doctor|teacher|driver|manager|neighbor|lawyer|nurse|plumber|dentist|captain|chef|engineer|artist|farmer|"
    "baker|waiter|guard|assistant|technician|mechanic|gardener|pilot|musician|writer|student|customer|colleague",
    "kin": "mother|father|sister|brother|daughter|son|wife|husband|uncle|aunt|cousin|grandmother|grandfather|friend",
    "quality": "small|large|new|old|beautiful|cheap|expensive|quiet|busy|clean|bright|dark|heavy|light|soft|warm|cold|"
    "strange|famous|simple|perfect|comfortable|useful|broken|empty|full|narrow|wide|modern|friendly|lovely|huge|tiny",
    "color": "red|blue|green|yellow|black|white|brown|gray|orange|purple|pink|silver|golden",
    "adverb": "quickly|slowly|carefully|quietly|easily|finally|suddenly|usually|probably|certainly|actually|really|"
    "exactly|nearly|recently|obviously|unfortunately|of course|simply|gladly|happily|maybe|perhaps|surely",
    "service": "account|order|booking|subscription|delivery|payment|refund|appointment|reservation|"
    "application|password|"
    "profile|invoice|insurance|membership|request|complaint|contract|phone number|email address|shipping address",
    "problem": "the screen stays black|the internet is slow|the password does not work|the package has not arrived|"
    "the heating is broken|the door will not open|the printer is out of paper|the battery is empty|the bill is wrong|"
    "the sound is too quiet|the app keeps crashing|the light is blinking|the order was canceled|the flight is delayed",
    "activity": "swimming|reading|cooking|dancing|running|painting|singing|traveling|working|playing chess|gardening|"
    "walking the dog|watching movies|learning Spanish|riding a bicycle|taking photographs|cleaning the kitchen",
    "weather": "sunny|cloudy|rainy|windy|foggy|warm and dry|cold and wet|snowy|stormy|humid|freezing|mild|hot",
    "topic": "history|science|music|the weather|football|cooking|gardening|politics|art|space|the news|travel|movies|"
    "mathematics|health|money|languages|computers|animals|the ocean|photography|architecture|philosophy",
}

_PARTS: Final[Mapping[str, str]] = {
    "lead": "Sure|Of course|Okay|All right|Great|Perfect|No problem|Thanks|Thank you|I see|Good question|Absolutely|"
    "Certainly|Right|Well|Yes|No|Sorry|Let me see|One moment|Got it|Understood|Wonderful|Great choice|I understand",
    "doing": "call {kinof}|send an email to {name}|book a table|order some {food}|find the {place}|clean the {thing}|"
    "bring the {thing}|look for the {thing}|talk to the {person}|open the {thing}|pay the bill|go to the {place}|"
    "change the {service}|cancel the {service}|check the {service}|repair the {thing}|buy {number} {things}|"
    "read a {thing}|write a {thing}|meet {name} at the {place}|wait for the {person}|visit {city}|play some music|"
    "turn off the {thing}|move the meeting|set an alarm|start a timer|learn about {topic}|make some {food}|"
    "sign the {thing}|take the {color} {thing}|pick up the {things}|help the {person}|explain the {thing}",
    "kinof": "my {kin}|your {kin}|his {kin}|her {kin}|{name}|{name} {surname}|the {person}|our {person}",
    "past": "went to the {place}|bought a {quality} {thing}|called the {person}|lost the {thing}|found the {thing}|"
    "arrived at {clock}|moved to {city}|worked in {city}|cooked some {food}|opened the {thing}|forgot the {thing}|"
    "talked about {topic}|sold the {quality} {thing}|painted the {thing} {color}|left for {city}|asked for the {thing}|"
    "fixed the {thing}|spent {money}|waited for {duration}|came home at {clock}|saw the {person} at the {place}",
    "npart": "the {quality} {thing}|a {color} {thing}|{number} {things}|the {things}|your {thing}|my {kin}|"
    "the {person}|"
    "the {place} in {city}|the {thing} on the {thing}|a cup of {food}|some {food}|the {color} {things}|our {service}",
    "reason": "because {problem}|because it was {weather}|since {kinof} {past}|so that you can {doing}|"
    "because I wanted to {doing}|although it is {quality}|if you want to {doing}|before you {doing}|"
    "after {kinof} {past}|"
    "when {kinof} {past}|while {kinof} {past}|unless you {doing}|even though {problem}",
    "list": "{food}, {food}, and {food}|{things}, {things}, and {things}|{name}, {name}, and {name}|"
    "{weekday}, {weekday}, and {weekday}|{color}, {color}, or {color}|{city}, {city}, and {city}|"
    "{small}, {small}, and {small}|{topic}, {topic}, {topic}, and {topic}|{food}, {food}, {food}, and some {food}",
    "digits": "{digit} {digit} {digit}|{digit} {digit} {digit}, {digit} {digit} {digit} {digit}|"
    "{digit} {digit}, {digit} {digit}, {digit} {digit}|{digit} {digit} {digit} {digit} {digit}",
}

_STATEMENTS: Final = (
    "{lead}, I can {doing} {when}.",
    "{lead}, your {service} has been changed, and you will get a {thing} {when}.",
    "{lead}, the {service} is confirmed for {day} at {clock}.",
    "I have {number} {things} for you, and the {ordinal} one is the {quality} one.",
    "Your {service} number is {digits}.",
    "The code is {digits}.",
    "You can reach {kinof} at {digits}.",
    "The {thing} costs {money}, and the {thing} costs {money}.",
    "That will be {money}, please.",
    "The total comes to {money}, including {money} for delivery.",
    "We open at {clock} and close at {clock}.",
    "The train to {city} leaves at {clock} from platform {small}.",
    "The next flight to {city} is {day} at {clock}, and it takes {duration}.",
    "I am sorry to hear that {problem}.",
    "I am sorry, but {npart} is not available {day}.",
    "I understand that {problem}, so let me {doing}.",
    "Please {doing} {when}.",
    "Please {doing}, and then {doing}.",
    "Do not forget to {doing} {when}.",
    "You should {doing} {reason}.",
    "You need {list}.",
    "We have {list}.",
    "First {doing}, then {doing}, and finally {doing}.",
    "There are {number} {things} in the {place}.",
    "There is {npart} near the {place}.",
    "{kinof} {past}.",
    "{kinof} {past} {reason}.",
    "Yesterday {kinof} {past}, and then {kinof} {past}.",
    "Last {weekday} {kinof} {past}.",
    "In the {daypart}, {kinof} {past}.",
    "{npart} is {quality}, but {npart} is {quality}.",
    "I think that {npart} is too {quality}.",
    "I would like {npart} and {npart}, please.",
    "It is {clock}, and it is {weather} in {city}.",
    "{day} it will be {weather} in {city}, with {number} degrees in the {daypart}.",
    "The weather in {city} is {weather} {day}.",
    "My name is {name} {surname}, and I work as a {person} in {city}.",
    "This is {name} from the {place}, and I am calling about your {service}.",
    "Hello {name}, this is {name} {surname}.",
    "{name}, your {person} is here.",
    "{adverb}, {kinof} {past}.",
    "It takes {duration} to get from {city} to {city}.",
    "The meeting with {name} was moved from {clock} to {clock}.",
    "I will remind you {when} to {doing}.",
    "I have added {list} to your list.",
    "Your timer for {duration} has started.",
    "{lead}. The {thing} is on the {thing}.",
    "{lead}. I found {number} {things} in {city}.",
    "{lead}, that is a {quality} {thing}.",
    "She likes {activity}, and he prefers {activity}.",
    "{activity} is good for you, but {activity} is more fun.",
    "He said that {kinof} {past}.",
    "Everybody knows that {npart} is {quality}.",
    "If {problem}, {doing} and {doing}.",
    "If you {doing}, I will {doing}.",
    "When {kinof} {past}, it was already {clock}.",
    "Most people {doing} {when}.",
    "Nobody wanted to {doing} {reason}.",
    "The {quality} {person} from {city} {past}.",
    "I do not know whether {kinof} {past}.",
    "It was {quality}, {quality}, and {quality}.",
    "We could {doing}, or we could {doing}.",
    "Let us {doing} {when}.",
    "Let me {doing} first.",
    "{lead}, I will connect you with the {person}.",
    "Thank you for calling, {name}, and have a {quality} {daypart}.",
    "You have {number} new {things} and {number} unread {things}.",
    "The {ordinal} of {month} is a {weekday}.",
    "Turn left at the {place}, and then walk for {duration} until you see the {place}.",
    "{name} is {tens} {digit19} years old and lives in {city}.",
    "The answer is {number}.",
    "About {number} people live near the {place}.",
    "A short course on {topic} starts {day}, and it costs {money}.",
    "I can tell you something about {topic}, {topic}, or {topic}.",
    "It's {quality}, isn't it, but we'll {doing} anyway.",
    "I don't think you'll have to {doing} {reason}.",
    "They've {past2} the {thing}, so it won't take long.",
    "We're happy to {doing} whenever you're ready.",
    "{lead}!",
    "What a {quality} {thing}!",
    "That's {quality}!",
)

_QUESTIONS: Final = (
    "Would you like to {doing}?",
    "Would you like {npart} or {npart}?",
    "Do you want me to {doing} {when}?",
    "Do you want to {doing}, or should I {doing}?",
    "Can you {doing} {when}?",
    "Can I {doing}?",
    "Could you please {doing}?",
    "Could you tell me how to {doing}?",
    "Shall I {doing}?",
    "Should we {doing} {when}?",
    "Is {npart} {quality}?",
    "Is it {weather} in {city}?",
    "Is {name} at the {place}?",
    "Is there {npart} in the {place}?",
    "Are you {activity} {day}?",
    "Are there any {things} left?",
    "Are you sure that {kinof} {past}?",
    "Did {kinof} {doing}?",
    "Did you see {npart}?",
    "Does {kinof} like {activity}?",
    "Does {day} at {clock} work for you?",
    "Have you ever been to {city}?",
    "Have you seen my {thing}?",
    "Has the {person} called you {day}?",
    "Will {kinof} be in {city} {day}?",
    "Will it be {weather} {day}?",
    "May I ask for your {service}?",
    "Was it {npart} or {npart}?",
    "Were they {quality}?",
    "{lead}, do you also need {npart}?",
    "{lead}, is that {quality} enough?",
    "You want to {doing}, right?",
    "Really?",
    "Anything else?",
    "Is that okay?",
    "Are you there?",
    "Ready?",
    "{name}?",
    "{kinof} {past}?",
    "What is your {service}?",
    "What time does the {place} open?",
    "What kind of {thing} do you want?",
    "What happened to {npart}?",
    "Where is the nearest {place}?",
    "Where did {kinof} put the {things}?",
    "Where would you like to go {day}?",
    "When does the train to {city} leave?",
    "When would you like to {doing}?",
    "Who {past}?",
    "Who wants to {doing}?",
    "Why did {kinof} {doing}?",
    "How can I help you {day}?",
    "How many {things} do you need?",
    "How long does it take to {doing}?",
    "How much is the {quality} {thing}?",
    "How was your {daypart}?",
    "Which {thing} do you prefer, the {color} one or the {color} one?",
    "Whose {thing} is this?",
)

_SHORT: Final = (
    "Yes.",
    "No.",
    "Okay.",
    "Sure.",
    "Hello.",
    "Hi.",
    "Thanks.",
    "Thank you.",
    "Goodbye.",
    "Please.",
    "Sorry.",
    "Maybe.",
    "Right.",
    "Wait.",
    "Stop.",
    "Done.",
    "Great.",
    "Exactly.",
    "Perfect.",
    "Good morning.",
    "Good evening.",
    "Good night.",
    "Of course.",
    "Not yet.",
    "I see.",
    "Never mind.",
    "See you later.",
    "Take care.",
    "Well done.",
    "One moment, please.",
    "Hold on.",
    "Let me check.",
    "You're welcome.",
    "I don't know.",
    "That's right.",
    "No problem.",
    "Sounds good.",
    "Come in.",
    "Excuse me.",
    "Welcome back.",
    "All done.",
    "Not today.",
    "Yes, please.",
    "No, thank you.",
    "{name}.",
    "{city}.",
    "{weekday}.",
    "{number}.",
    "{color}.",
    "{clock}.",
    "{money}.",
    "{food}.",
    "{digits}.",
    "{adverb}.",
    "{month}.",
    "{lead}.",
)

_RULES: Final = {
    name: tuple(rule.split("|"))
    for name, rule in ({**_WORDS, **_PARTS, "past2": "closed|opened|fixed|sold|cleaned|moved|checked"}).items()
}


def sentence(rng: random.Random) -> str:
    """One sentence: two in five are questions, one in twelve is of a word or a few."""
    kind = rng.random()
    rules = _QUESTIONS if kind < 0.4 else _STATEMENTS if kind < 0.92 else _SHORT
    return _capital(_filled(rng.choice(rules), rng))


def _filled(rule: str, rng: random.Random) -> str:
    while "{" in rule:
        rule = _SLOT.sub(lambda slot: rng.choice(_RULES[slot[1]]), rule)
    return rule


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
