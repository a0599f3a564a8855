"""What the published front end knows of each language: limits, abbreviations, signs, ordinals and thousands.

These are the facts that the published weights were trained with, odd ones included: a better expansion would be text
that the model has not read.
"""

from typing import Mapping, NamedTuple, Tuple

SIGNS = "&@%#$£°"  # in the order of the words below


class LanguageFacts(NamedTuple):
    """One language of the published front end."""

    max_characters: int  # of a piece that is said in one go
    signs: Tuple[str, ...] = ()  # the words of SIGNS
    abbreviations: Mapping[str, str] = {}  # all in lower case, without the full stop
    has_full_stops: bool = True  # whether an abbreviation ends with a full stop
    ordinal: str = ""  # a pattern of what follows the digits of an ordinal
    thousands: str = "."  # what is left out between groups of three digits
    cents: str = ", "  # what num2words writes between an amount and its hundredths


LANGUAGES: Mapping[str, LanguageFacts] = {
    "en": LanguageFacts(
        max_characters=250,
        signs=("and", "at", "percent", "hash", "dollar", "pound", "degree"),
        abbreviations={
            **{"mrs": "misess", "mr": "mister", "dr": "doctor", "drs": "doctors", "jr": "junior", "esq": "esquire"},
            **{"st": "saint", "ft": "fort", "co": "company", "ltd": "limited", "rev": "reverend", "hon": "honorable"},
            **{"maj": "major", "gen": "general", "lt": "lieutenant", "sgt": "sergeant", "capt": "captain"},
            "col": "colonel",
        },
        ordinal="st|nd|rd|th",
        thousands=",",
    ),
    "es": LanguageFacts(
        max_characters=239,
        signs=("y", "arroba", "por ciento", "numeral", "dolar", "libra", "grados"),
        abbreviations={
            **{"sra": "señora", "sr": "señor", "dr": "doctor", "dra": "doctora", "st": "santo"},
            **{"co": "compañía", "jr": "junior", "ltd": "limitada"},
        },
        ordinal="º|ª|er|o|a|os|as",
        cents=" con ",
    ),
    "fr": LanguageFacts(
        max_characters=273,
        signs=("et", "arobase", "pour cent", "dièse", "dollar", "livre", "degrés"),
        abbreviations={
            **{"mme": "madame", "mr": "monsieur", "dr": "docteur", "st": "saint"},
            **{"co": "compagnie", "jr": "junior", "ltd": "limitée"},
        },
        ordinal="º|ª|er|re|e|ème",
        cents=" et ",
    ),
    "de": LanguageFacts(
        max_characters=253,
        signs=("und", "at", "prozent", "raute", "dollar", "pfund", "grad"),
        abbreviations={"fr": "frau", "dr": "doktor", "st": "sankt", "co": "firma", "jr": "junior"},
        ordinal=r"st|nd|rd|th|º|ª|\.(?=\s|$)",
        cents=" und ",
    ),
    "it": LanguageFacts(
        max_characters=213,
        signs=("e", "chiocciola", "per cento", "cancelletto", "dollaro", "sterlina", "gradi"),
        abbreviations={
            **{"sig": "signore", "dr": "dottore", "st": "santo"},
            **{"co": "compagnia", "jr": "junior", "ltd": "limitata"},
        },
        ordinal="º|°|ª|o|a|i|e",
        cents=" e ",
    ),
    "pt": LanguageFacts(
        max_characters=203,
        signs=("e", "arroba", "por cento", "cardinal", "dólar", "libra", "graus"),
        abbreviations={
            **{"sra": "senhora", "sr": "senhor", "dr": "doutor", "dra": "doutora", "st": "santo"},
            **{"co": "companhia", "jr": "júnior", "ltd": "limitada"},
        },
        ordinal="º|ª|o|a|os|as",
        cents=" e ",
    ),
    "pl": LanguageFacts(
        max_characters=224,
        signs=("i", "małpa", "procent", "krzyżyk", "dolar", "funt", "stopnie"),
        abbreviations={"p": "pani", "m": "pan", "dr": "doktor", "sw": "święty", "jr": "junior"},
        ordinal="º|ª|st|nd|rd|th",
    ),
    "tr": LanguageFacts(
        max_characters=226,
        signs=("ve", "at", "yüzde", "diyez", "dolar", "sterlin", "derece"),
        abbreviations={"b": "bay", "byk": "büyük", "dr": "doktor"},
        ordinal=r"\.|inci|nci|uncu|üncü",
    ),
    "ru": LanguageFacts(
        max_characters=182,
        signs=("и", "собака", "процентов", "номер", "доллар", "фунт", "градус"),
        abbreviations={"г-жа": "госпожа", "г-н": "господин", "д-р": "доктор"},
        has_full_stops=False,
        ordinal="-й|-я|-е|-ое|-ье|-го",
        thousands=",",
    ),
    "nl": LanguageFacts(
        max_characters=251,
        signs=("en", "bij", "procent", "hekje", "dollar", "pond", "graden"),
        abbreviations={"dhr": "de heer", "mevr": "mevrouw", "dr": "dokter", "jhr": "jonkheer"},
        ordinal="de|ste|e",
    ),
    "cs": LanguageFacts(
        max_characters=186,
        signs=("a", "na", "procento", "křížek", "dolar", "libra", "stupně"),
        abbreviations={"dr": "doktor", "ing": "inženýr", "p": "pan"},
        ordinal=r"\.(?=\s|$)",
    ),
    "ar": LanguageFacts(
        max_characters=166,
        signs=("و", "على", "في المئة", "رقم", "دولار", "جنيه", "درجة"),
        ordinal="ون|ين|ث|ر|ى",
    ),
    "zh": LanguageFacts(max_characters=82, signs=("和", "在", "百分之", "号", "美元", "英镑", "度")),
    "hu": LanguageFacts(
        max_characters=224,
        signs=("és", "kukac", "százalék", "kettőskereszt", "dollár", "font", "fok"),
        abbreviations={"dr": "doktor", "b": "bácsi", "nőv": "nővér"},
        ordinal=r"\.|adik|edik|odik|ödik|ödike|ik",
    ),
    "ko": LanguageFacts(
        max_characters=95,
        signs=("그리고", "에", "퍼센트", "번호", "달러", "파운드", "도"),
        ordinal="번째|번|차|째",
    ),
    "ja": LanguageFacts(max_characters=71),  # all is left to cutlet
    "hi": LanguageFacts(
        max_characters=150,
        signs=("और", "ऐट दी रेट", "प्रतिशत", "हैश", "डॉलर", "पाउंड", "डिग्री"),
        ordinal="st|nd|rd|th",
    ),
}


def base_language(language: str) -> str:
    """The language without its region: "zh" of "zh-cn"."""
    return language.lower().partition("-")[0]
