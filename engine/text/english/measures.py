"""Units and magnitudes as they stand behind a number: how they are read. Pure tables."""

from typing import Final

# Symbol -> singular, plural. Case matters: MB is not mb.
UNITS: Final[dict[str, tuple[str, str]]] = {
    "km": ("kilometer", "kilometers"),
    "m": ("meter", "meters"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "nm": ("nanometer", "nanometers"),
    "mi": ("mile", "miles"),
    "ft": ("foot", "feet"),
    "yd": ("yard", "yards"),
    "kg": ("kilogram", "kilograms"),
    "g": ("gram", "grams"),
    "mg": ("milligram", "milligrams"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "l": ("liter", "liters"),
    "L": ("liter", "liters"),
    "ml": ("milliliter", "milliliters"),
    "mL": ("milliliter", "milliliters"),
    "h": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "s": ("second", "seconds"),
    "sec": ("second", "seconds"),
    "secs": ("second", "seconds"),
    "ms": ("millisecond", "milliseconds"),
    "kB": ("kilobyte", "kilobytes"),
    "KB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"),
    "Mbps": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"),
    "kbps": ("kilobit per second", "kilobits per second"),
    "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "W": ("watt", "watts"),
    "kW": ("kilowatt", "kilowatts"),
    "MW": ("megawatt", "megawatts"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "V": ("volt", "volts"),
    "dB": ("decibel", "decibels"),
    "px": ("pixel", "pixels"),
    "fps": ("frame per second", "frames per second"),
    "kcal": ("kilocalorie", "kilocalories"),
    "rpm": ("revolution per minute", "revolutions per minute"),
    "bpm": ("beat per minute", "beats per minute"),
    "psi": ("pound per square inch", "pounds per square inch"),
    "tsp": ("teaspoon", "teaspoons"),
    "tbsp": ("tablespoon", "tablespoons"),
    "qt": ("quart", "quarts"),
    "gal": ("gallon", "gallons"),
    "dL": ("deciliter", "deciliters"),
    "mmol": ("millimole", "millimoles"),
    "mcg": ("microgram", "micrograms"),
    "mmHg": ("millimeter of mercury", "millimeters of mercury"),
    "μg": ("microgram", "micrograms"),
    "Tbsp": ("tablespoon", "tablespoons"),
    "fl oz": ("fluid ounce", "fluid ounces"),
    "sq ft": ("square foot", "square feet"),
    "sq mi": ("square mile", "square miles"),
    "yr": ("year", "years"),
    "yrs": ("year", "years"),
    "wk": ("week", "weeks"),
    "wks": ("week", "weeks"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "mpg": ("mile per gallon", "miles per gallon"),
    "mph": ("mile per hour", "miles per hour"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "kmh": ("kilometer per hour", "kilometers per hour"),
    "m/s": ("meter per second", "meters per second"),
}
# Not read as units behind a blank: "5 s" and "2 h" are rather letters.
ONLY_ATTACHED: Final = frozenset({"s", "h"})

# What may stand behind the slash of "$20/month".
PER: Final[dict[str, str]] = {
    **{
        name: name
        for name in ("second", "minute", "hour", "day", "night", "week", "month", "year", "person", "user", "seat")
    },
    "s": "second",
    "sec": "second",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "wk": "week",
    "mo": "month",
    "yr": "year",
    "kg": "kilogram",
    "lb": "pound",
    "L": "liter",
    "dL": "deciliter",
    "mL": "milliliter",
    "GB": "gigabyte",
    "kWh": "kilowatt hour",
    "gal": "gallon",
    "mile": "mile",
}

MAGNITUDES: Final[dict[str, str]] = {
    "thousand": "thousand",
    "million": "million",
    "billion": "billion",
    "trillion": "trillion",
    "k": "thousand",
    "m": "million",
    "b": "billion",
    "K": "thousand",
    "M": "million",
    "mn": "million",
    "B": "billion",
    "bn": "billion",
    "T": "trillion",
}

# Sign -> unit, units, hundredth, hundredths; an empty hundredth: the currency has none.
CURRENCIES: Final[dict[str, tuple[str, str, str, str]]] = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "", ""),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "₩": ("won", "won", "", ""),
}

# As banks write them: USD 45.00, 45 EUR.
CURRENCY_CODES: Final = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹", "KRW": "₩"}

_CONCENTRATIONS: Final = frozenset(
    f"{unit}/{part}" for unit in ("g", "mg", "mcg", "mmol") for part in ("L", "dL", "mL", "kg")
)
_SPELLED_MAGNITUDES: Final = frozenset({"thousand", "million", "billion", "trillion", "bn"})
_HALF_DAYS: Final = frozenset({"am", "pm", "AM", "PM", "a.m", "p.m", "A.M", "P.M"})
# Words that belong to the number before a blank: the reading of both depends on each other.
AFTER_NUMBER: Final = (
    frozenset(UNITS) - ONLY_ATTACHED
    | _CONCENTRATIONS
    | _SPELLED_MAGNITUDES
    | _HALF_DAYS
    | frozenset(CURRENCY_CODES)
    | frozenset({"°C", "°F"})
)
