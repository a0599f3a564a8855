"""Chinese numbers in characters: dates, amounts of money, telephone numbers, fractions, percentages and counts.

As in the public implementation each kind is first searched in the whole text, then each match replaces the first place
where the same characters stand. Last, all punctuation becomes a comma.
"""

import re
import string
from typing import Callable, List, NamedTuple, Sequence

DIGITS = "零一二三四五六七八九"
_UNITS = {1: "十", 2: "百", 3: "千", 4: "万", **{8 + 4 * n: unit for n, unit in enumerate("亿兆京垓秭穰沟涧正载")}}
_PAIR = "两"  # two, before a unit other than ten
_POINT = "点"


def read_numbers(text: str) -> str:
    """The text with its numbers in characters, and with commas for all punctuation."""
    text = f"^{text}$"  # a mark at each end, because some patterns want a character beside a number
    for kind in _KINDS:
        if kind.half_width:
            text = text.replace("％", "%")
        for found in [match.group(1) for match in kind.pattern.finditer(text)]:
            if found:
                text = text.replace(found, kind.read(found), 1)
    text = text.lstrip("^").rstrip("$")
    return text.translate(_COMMAS)


def cardinal(digits: str) -> str:
    """Digits, perhaps with a fraction, as a number: 203 is 二百零三."""
    whole, point, fraction = digits.partition(".")
    symbols = _symbols(whole) if len(whole) > 1 else [_digit(whole)] if whole else []
    words = "".join(_characters(symbols))
    if point:
        words = (words or DIGITS[0]) + _POINT + digit_by_digit(fraction)
    if words.startswith(DIGITS[1] + _UNITS[1]):
        return words[1:]  # ten is 十, not 一十
    return words


def digit_by_digit(digits: str) -> str:
    """Each digit by its name."""
    return "".join(_digit(digit).name for digit in digits)


class _Symbol(NamedTuple):
    """A digit, or the unit of a power of ten."""

    name: str
    power: int = 0  # 0: a digit

    @property
    def is_two(self) -> bool:
        return not self.power and self.name == DIGITS[2]


def _digit(digit: str) -> _Symbol:
    return _Symbol(DIGITS[int(digit)])


def _symbols(digits: str) -> List[_Symbol]:
    """The digits with their units; zeros between them are one zero."""
    rest = digits.lstrip("0")
    if not rest:
        return []
    if len(rest) == 1:
        return [_digit("0"), _digit(rest)] if len(digits) > 1 else [_digit(rest)]
    power = max(power for power in _UNITS if power < len(rest))
    return [*_symbols(digits[:-power]), _Symbol(_UNITS[power], power), *_symbols(rest[-power:])]


def _characters(symbols: Sequence[_Symbol]) -> List[str]:
    """The symbols' characters, with 两 for a two that begins, or follows a unit, and stands before a larger unit."""
    found = [symbol.name for symbol in symbols]
    for place, (symbol, after) in enumerate(zip(symbols, symbols[1:])):
        is_first = place == 0
        follows_unit = is_first or symbols[place - 1].power > 1
        if symbol.is_two and after.power > 1 and follows_unit:
            found[place] = _PAIR
    return found


def _date(found: str) -> str:
    """2008年5月12日: the year digit by digit, month and day as numbers."""
    year, has_year, rest = found.partition("年")
    month, has_month, day = (rest if has_year else found).partition("月")
    words = f"{digit_by_digit(year)}年" if has_year else ""
    words += f"{cardinal(month)}月" if has_month else ""
    return words + (f"{cardinal(day[:-1])}{day[-1]}" if day else "")


def _money(found: str) -> str:
    for number in [match.group() for match in re.finditer(r"\d+(?:\.\d+)?", found)]:
        found = found.replace(number, cardinal(number))
    return found


def _telephone(found: str) -> str:
    return digit_by_digit(re.sub(r"[-+\s]", "", found))


def _fraction(found: str) -> str:
    above, below = found.split("/")
    return f"{cardinal(below)}分之{cardinal(above)}"


def _percentage(found: str) -> str:
    return f"百分之{cardinal(found.rstrip('%'))}"


def _restored(found: str) -> str:
    """B2B, of which the digit was read."""
    return re.sub("^([a-zA-Z]+)二", r"\g<1>2", found)


class _Kind(NamedTuple):
    """A kind of numbers: a pattern, of which group 1 is read, and how."""

    pattern: "re.Pattern[str]"
    read: Callable[[str], str]
    half_width: bool = False  # whether ％ becomes % before


_SCALE = "亿|千万|百万|万|千|百"
_CURRENCY = f"(?:(?:{_SCALE})|(?:{_SCALE}|)元|(?:{_SCALE}|)块|角|毛|分)"
_MEASURES = (  # counted things, one character each, but for some weights and lengths
    "匹张座回场尾条个首阙阵网炮顶丘棵只支袭辆挑担颗壳窠曲墙群腔砣座客贯扎捆刀令打手罗坡山岭江溪钟队单双对出口头脚板跳枝件贴"
    "针线管名位身堂课本页家户层丝毫厘分钱两斤担铢石钧锱忽毫厘分寸尺丈里寻常铺程撮勺合升斗石盘碗碟叠桶笼盆"
    "盒杯钟斛锅簋篮盘桶罐瓶壶卮盏箩箱煲啖袋钵年月日季刻时周天秒分旬纪岁世更夜春夏秋冬代伏辈丸泡粒颗幢堆条根支道面片张颗块"
)
_MEASURE = f"(?:[{_MEASURES}]|[千毫微]克|[千分厘毫微]米)"
_MOBILE = r"(?:\+?86 ?)?1(?:[38]\d|5[0-35-9]|7[678]|9[89])\d{8}"
_LANDLINE = r"(?:0(?:10|2[1-3]|[3-9]\d{2})-?)?[1-9]\d{6,7}"
_NUMBER = r"\d+(?:\.\d+)?"

_KINDS = [  # the most specific first
    _Kind(re.compile(r"\D+((?:(?:[089]\d|(?:19|20)\d{2})年)?(?:\d{1,2}月(?:\d{1,2}[日号])?)?)"), _date),
    _Kind(re.compile(rf"\D+({_NUMBER}[多余几]?{_CURRENCY}(?:\d{_CURRENCY}?)?)"), _money),
    _Kind(re.compile(rf"\D({_MOBILE})\D"), _telephone),
    _Kind(re.compile(rf"\D({_LANDLINE})\D"), _telephone),
    _Kind(re.compile(r"(\d+/\d+)"), _fraction),
    _Kind(re.compile(rf"({_NUMBER}%)"), _percentage, half_width=True),
    _Kind(re.compile(rf"({_NUMBER})[多余几]?{_MEASURE}"), cardinal),
    _Kind(re.compile(r"(\d{4,32})"), digit_by_digit),
    _Kind(re.compile(rf"({_NUMBER})"), cardinal),
    _Kind(re.compile("([a-zA-Z]+二[a-zA-Z]+)"), _restored),
]
_WIDE_PUNCTUATION = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃《》「」『』【】〔〕〖〗〘〙〚〛"
    "〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏·〈〉-"
)
_COMMAS = str.maketrans(dict.fromkeys(_WIDE_PUNCTUATION + string.punctuation, ","))
