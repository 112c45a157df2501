"""Units, currencies and magnitudes as they stand at a number in Chinese text: how they are read. Pure tables."""

from typing import Final

UNITS: Final[dict[str, str]] = {
    "km": "公里",
    "m": "米",
    "dm": "分米",
    "cm": "厘米",
    "mm": "毫米",
    "μm": "微米",
    "nm": "纳米",
    "km²": "平方公里",
    "m²": "平方米",
    "cm²": "平方厘米",
    "mm²": "平方毫米",
    "m³": "立方米",
    "cm³": "立方厘米",
    "kg": "公斤",
    "g": "克",
    "mg": "毫克",
    "μg": "微克",
    "t": "吨",
    "L": "升",
    "l": "升",
    "mL": "毫升",
    "ml": "毫升",
    "h": "小时",
    "min": "分钟",
    "s": "秒",
    "ms": "毫秒",
    "μs": "微秒",
    "ns": "纳秒",
    "km/h": "公里每小时",
    "m/s": "米每秒",
    "m/s²": "米每二次方秒",
    "mph": "英里每小时",
    "kg/m³": "千克每立方米",
    "Hz": "赫兹",
    "kHz": "千赫",
    "MHz": "兆赫",
    "GHz": "吉赫",
    "W": "瓦",
    "kW": "千瓦",
    "MW": "兆瓦",
    "kWh": "千瓦时",
    "V": "伏",
    "mA": "毫安",
    "mAh": "毫安时",
    "Ω": "欧姆",
    "Pa": "帕",
    "kPa": "千帕",
    "mmHg": "毫米汞柱",
    "mmol/L": "毫摩尔每升",
    "mg/dL": "毫克每分升",
    "μg/m³": "微克每立方米",
    "MPa": "兆帕",
    "N": "牛",
    "J": "焦",
    "kJ": "千焦",
    "cal": "卡",
    "kcal": "千卡",
    "dB": "分贝",
    "px": "像素",
    "fps": "帧每秒",
    "bps": "比特每秒",
    "kbps": "千比特每秒",
    "Mbps": "兆比特每秒",
    "Gbps": "吉比特每秒",
    "lb": "磅",
    "lbs": "磅",
    "oz": "盎司",
    "ft": "英尺",
    "mi": "英里",
    "rpm": "转每分钟",
    "°C": "摄氏度",
    "°F": "华氏度",
    "°": "度",
}
# Letters behind a number that are rather a name: 5 V 5, 3 N. Read only right at the digits.
ONLY_ATTACHED: Final = frozenset({"h", "s", "t", "N", "J", "V", "W", "L", "l", "m", "g"})

# ¥ is the yuan here: the yen is written 日元.
CURRENCIES: Final[dict[str, str]] = {
    "US$": "美元",
    "HK$": "港元",
    "NT$": "新台币",
    "$": "美元",
    "€": "欧元",
    "£": "英镑",
    "¥": "元",
    "₹": "卢比",
    "₩": "韩元",
}

# Power of ten of an English magnitude: Chinese counts in 万 and 亿.
MAGNITUDES: Final[dict[str, int]] = {
    "k": 3,
    "K": 3,
    "w": 4,  # 万
    "thousand": 3,
    "M": 6,
    "mn": 6,
    "million": 6,
    "B": 9,
    "bn": 9,
    "billion": 9,
    "trillion": 12,
}

# Behind these words a number is a code, read digit by digit.
CODE_WORDS: Final = (
    "验证码|取件码|尾号|分机号?|密码|口令|编号|单号|卡号|账号|帐号|学号|工号|房间号?|房号|手机号?码?|电话号?码?|号码|邮编|证件号|身份证号?码?"
    "|QQ(?:群号?(?=[是为：: ]{0,3}\\d{5})|号)?|群号|税号|识别号|流水号|序列号|会员号|[后末][四4]位(?:数字?)?|ID|PIN"
)

# Written out behind an amount that has the sign of its currency: ¥199元.
WRITTEN_CURRENCIES: Final = "人民币|元(?![旦宵素件老首音])|块钱?|[美日欧港]元|美金|英镑|欧|港币|新?台币|韩元|卢比"

# The start of such a word, or of 第: how a number behind it is read is not known before.
CODE_WORD_START: Final = (
    "(?:第|验证?码?|取件?码?|密码?|口令?|编号?|单号?|卡号?|[账帐]号?|学号?|工号?|房间?号?|手机?号?码?|电话?号?码?|号码?|邮编?|证件?号?|身份?证?号?码?)"
    "[是为]?"
)

# What is counted: before these two is 两, before anything else (月, 号, 楼, 级) it is 二.
COUNTED: Final = (
    "(?:小时|分钟|星期|礼拜|钟头|英[里尺寸镑亩]|海里|平方|立方|摄氏度|华氏度|[美欧]元|加仑|百分点|公[里斤顷尺分吨]|代人"
    "|[千毫微][米克升安瓦赫]|[厘分纳]米|次(?![元方函])|年(?!级)"
    "|[万亿千百个位名人只条张本件块把辆台架间栋座幢套双对副份封篇页章节首场回趟遍声步层杯瓶碗盘盒袋包箱桶罐壶片颗粒滴枚根支枝朵棵株盆束"
    "串群批队组项款种类样番顿笔段句字家口户头匹尾倍度圈天周季岁秒分刻辈元角毛米里尺寸丈亩升斤克吨瓦伏安帕焦赫处幅面扇艘门道集部堂课则"
    "桌床针剂餐站勺瓣晚]|汤匙|茶匙)"
)
