"""Random sentences of the demo corpus, from a small grammar for each language.

A phrase has several alternatives, one on each line, in which {name} stands for a phrase of that name and {2..99} for a
number; a sentence is expanded from {sentence}. The words are common and sound distinct. The wide vocabulary has many
hundreds of them; the small one is for tiny models.
"""

import random
import re
from typing import Dict, List, NamedTuple

_SLOT = re.compile(r"\{(?:(\d+)\.\.(\d+)|(\w+))\}")


class Grammar(NamedTuple):
    """The phrases of a language, and its ten digits."""

    phrases: Dict[str, List[str]]
    digits: str

    def sentence(self, chance: random.Random) -> str:
        """A random sentence. Only `chance.random()` is used, which is the same on every Python."""

        def drawn(slot: "re.Match[str]") -> str:
            low, high, name = slot.groups()
            if name is None:
                number = int(low) + int(chance.random() * (int(high) - int(low) + 1))
                return "".join(self.digits[int(digit)] for digit in str(number))
            lines = self.phrases[name]
            return _SLOT.sub(drawn, lines[int(chance.random() * len(lines))])

        text = _SLOT.sub(drawn, "{sentence}")
        return text[:1].upper() + text[1:]


def _lines(text: str) -> List[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _words(text: str) -> List[str]:
    return text.split()


ENGLISH = Grammar(
    {
        "sentence": _lines("""
            {event}.
            {fact}.
            {event} {time}.
            {time}, {event}.
            {event}, {and} {event}.
            {event} {time}, {and} {event}.
            {time}, {event}, {and} {fact}.
            {event} {because} {fact}.
            {question}?
            {short}.
        """),
        "event": _lines("""
            {person} {carried} {object}
            {person} {carried} {object} {near} the {place}
            {person} {traveled} to the {adjective} {place}
            {person} {traveled} from {city} to {city}
            {person} {said} that the {thing} was {quality}
            {person} and {person} {carried} {object} together
            the {adjective} {animal} {slept} {near} the {place}
            {2..99} {animals} {slept} {near} the {place}
            the {job} gave {object} to {person}
            {person} {ate} {food} and {food} with {person}
            the weather in {city} was {weather}
        """),
        "fact": _lines("""
            the {meeting} began at {1..12}:{10..59}
            the {thing} cost {10..99} dollars and {10..99} cents
            the {thing} cost ${2..95}.{10..99}
            {person} was born in {1900..2015}
            about {5..95}% of the {people} {agreed}
            the {place} is {2..9}.{1..9} kilometers from the {place}
            {person} has lived in {city} since {1950..2020}
            the {place} opened {2..80} years ago
            {person} counted {100..990} {things}
        """),
        "question": _lines("""
            did {person} forget the {adjective} {thing}
            where did {person} leave the {thing}
            how many {things} are {near} the {place}
            why was the {meeting} in {city} so {quality}
            who {carried} the {adjective} {thing} {time}
            when will the {job} visit {city}
            can you bring {object} to the {place}
        """),
        "short": _lines("""
            good morning, {name}
            thank you for the {adjective} {thing}
            please remember the {thing}
            welcome to {city}, {name}
            see you again on {weekday}
            my number is {10..99} {10..99} {10..99}
            happy birthday, {name}
            turn left {near} the {place}
        """),
        "object": _lines("""
            the {adjective} {thing}
            the {color} {thing}
            {our} {thing}
            {our} {adjective} {thing}
            {2..99} {things}
            {2..20} {color} {things}
        """),
        "person": _lines("""
            {name}
            {name}
            {our} {relative}
            the {job}
            the {adjective} {job}
        """),
        "time": _lines("""
            {day}
            {day} {part}
            last {season}
            in {month}
            in {month} {1980..2024}
            in {1900..1999}
            at {1..12}:{10..59}
            {2..30} {period} ago
            before {meal}
            after {meal}
            every {part}
        """),
        "day": ["on {weekday}", "on {weekday}", "yesterday", "last {weekday}"],
        "weekday": _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
        "part": _words("morning afternoon evening"),
        "season": _words("winter summer autumn spring weekend"),
        "month": _words("January February March April June July August September October November December"),
        "period": _words("minutes hours days weeks months years"),
        "meal": _words("breakfast lunch dinner supper"),
        "and": _words("and and but so while"),
        "because": _words("because although until unless"),
        "near": ["near", "behind", "in front of", "across from", "inside", "outside", "under"],
        "our": _words("our my his your"),
        "name": _words("""
            Oliver Victoria Benjamin Elizabeth Samuel Rebecca Jonathan Isabella Timothy Angela Christopher Veronica
            Gregory Melissa Patrick Susan Vincent Olivia Dominic Caroline Nicholas Amanda Frederick Sophia Alexander
            Jennifer Zachary Natalie Leonardo Margaret Adrian Teresa Harrison Pamela Marcus Felicia Edward Monica
        """),
        "relative": _words("brother sister grandmother grandfather uncle cousin neighbor daughter teacher friend"),
        "job": _words("""
            captain doctor engineer farmer gardener lawyer librarian mechanic musician officer painter pilot
            president professor sailor scientist secretary soldier student journalist carpenter detective
            electrician photographer ambassador
        """),
        "people": _words("students voters children customers passengers visitors engineers farmers families tourists"),
        "agreed": ["agreed", "disagreed", "waited outside", "returned early", "changed their mind", "applauded"],
        "animal": _words("""
            elephant kangaroo rabbit donkey monkey turtle tiger penguin crocodile squirrel dolphin buffalo
            parrot camel giraffe leopard spider butterfly
        """),
        "animals": _words("elephants rabbits donkeys monkeys turtles penguins squirrels dolphins parrots camels"),
        "slept": ["slept", "waited", "was sleeping quietly", "appeared suddenly", "disappeared", "wandered slowly"],
        "traveled": _words("traveled walked sailed returned wandered moved"),
        "said": _words("said explained believed remembered discovered thought promised"),
        "carried": _words("""
            carried painted collected delivered discovered borrowed repaired photographed examined ordered
            packed noticed destroyed measured polished purchased recovered finished followed
        """),
        "ate": _words("ate cooked prepared tasted shared ordered enjoyed"),
        "food": _words("""
            potatoes tomatoes spaghetti chocolate bananas mushrooms sandwiches yogurt strawberries
            vegetables pancakes cinnamon chicken lemonade coffee
        """),
        "weather": ["terrible", "beautiful", "cloudy", "very windy", "warm and sunny", "cold and foggy", "perfect"],
        "quality": [
            "important",
            "expensive",
            "wonderful",
            "difficult",
            "dangerous",
            "very simple",
            "unusual",
            "broken",
        ],
        "meeting": _words("concert meeting festival wedding lecture ceremony program interview exhibition election"),
        "color": _words("yellow purple orange silver golden green black"),
        "adjective": _words("""
            ancient beautiful comfortable dangerous elegant enormous famous heavy hungry important little modern
            mysterious narrow peaceful popular powerful quiet empty simple terrible valuable wonderful wooden young
        """),
        "place": _words("""
            airport museum library hospital university harbor mountain village kitchen garden factory theater
            restaurant bridge castle cathedral railway station market forest river desert island cottage
            apartment laboratory
        """),
        "city": _words("""
            London Paris Chicago Boston Istanbul Madrid Moscow Tokyo Vienna Lisbon Toronto Denver
            Amsterdam Barcelona Philadelphia Washington
        """),
        "thing": _words("""
            umbrella camera telescope computer guitar piano bicycle newspaper dictionary envelope blanket mirror
            window basket bottle hammer helicopter jacket ladder medicine necklace package photograph pillow
            suitcase telephone television ticket violin wallet magazine calendar candle carpet engine
        """),
        "things": _words("""
            umbrellas cameras computers guitars bicycles newspapers envelopes blankets mirrors windows baskets
            bottles hammers jackets ladders packages photographs pillows suitcases tickets magazines candles carpets
        """),
    },
    "0123456789",
)

PERSIAN = Grammar(
    {
        "sentence": _lines("""
            {event}.
            {fact}.
            {time} {event}.
            {event} {and} {event}.
            {time} {event} {and} {fact}.
            {event}، {because} {fact}.
            {question}؟
            {short}.
        """),
        "event": _lines("""
            {person} {object} را {bought}
            {person} {object} را از {place} {bought}
            {person} با {person} به {place} رفت
            {person} از {city} به {city} سفر کرد
            {person} {food} و {food} {ate}
            {person} {2..99} {thing} {bought}
            من {object} را {i_bought}
            من و {name} {thing}‌های {adjective} را {we_bought}
            ما در {place} {we_did}
            آن‌ها {object} را به {person} {they_gave}
            بچه‌ها در {place} {they_did}
            {animal}‌های {adjective} {near} {place} {they_did}
            {2..40} {animal} {near} {place} بودند
        """),
        "fact": _lines("""
            هوای {city} {weather} است
            قیمت {object} {2..990} هزار تومان است
            {meeting} ساعت {1..12}:{10..50} آغاز می‌شود
            {person} در سال {1300..1400} به دنیا آمد
            {5..95} درصد مردم {city} {they_think}
            {person} {4..80} ساله است
            {person} هر روز {food} می‌خورد
            {person} نمی‌تواند {object} را پیدا کند
            فاصله‌ی {city} تا {city} {100..990} کیلومتر است
        """),
        "question": _lines("""
            آیا {person} {object} را {bought}
            {object} کجا است
            چرا {person} به {place} نیامد
            چه کسی {object} را {bought}
            {name} کی به {city} می‌آید
            چند {thing} در {place} هست
            می‌توانی {object} را به {person} بدهی
        """),
        "short": _lines("""
            سلام {name}، حال شما چطور است
            از دیدن شما خوشحالم، {name}
            لطفاً {object} را بیاور
            خیلی ممنون از {object}
            صبح بخیر، {name}
            شماره‌ی من {10..99} {10..99} {10..99} است
            فردا در {place} می‌بینمت
        """),
        "object": _lines("""
            {thing} {adjective}
            {thing} {color}
            این {thing}
            آن {thing} {adjective}
            {thing} {name}
        """),
        "person": _lines("""
            {name}
            {name}
            {relative} من
            {relative} {name}
            {job}
            یک {job} {adjective}
        """),
        "time": _lines("""
            دیروز
            امروز صبح
            دیشب
            هفته‌ی گذشته
            روز {day}
            روز {day}
            در {season}
            در ماه {month}
            در سال {1340..1402}
            ساعت {1..12}
            {2..30} {period} پیش
            بعد از ظهر
            قبل از {meal}
        """),
        "day": ["شنبه", "یکشنبه", "دوشنبه", "سه‌شنبه", "چهارشنبه", "پنج‌شنبه", "جمعه"],
        "season": _words("بهار تابستان پاییز زمستان"),
        "month": _words("فروردین اردیبهشت خرداد تیر مرداد شهریور مهر آبان آذر دی بهمن اسفند"),
        "period": _words("دقیقه ساعت روز هفته ماه سال"),
        "meal": _words("صبحانه ناهار شام"),
        "and": _words("و و ولی اما"),
        "because": ["چون", "زیرا", "اگرچه", "به همین دلیل", "پس از آن"],
        "near": ["نزدیک", "کنار", "پشت", "روبروی", "بیرون"],
        "name": _words("""
            مریم رضا زهرا علی فاطمه حسین سارا محمد نرگس امیر شیرین بهرام پروین داریوش لیلا کاوه مینا سهراب
            نازنین فرهاد آرش نسرین کیان پریسا بابک سیمین جمشید گلنار منوچهر ژاله
        """),
        "relative": _words("برادر خواهر پدر مادر پدربزرگ مادربزرگ دوست پسر دختر همسر استاد شاگرد"),
        "job": _words("""
            معلم پزشک مهندس کشاورز باغبان وکیل بازیگر خلبان سرباز دانشجو روزنامه‌نگار نجار آشپز نقاش
            پرستار آهنگر کارگر شاعر مدیر
        """),
        "bought": [
            *_words("خرید دید آورد فروخت برداشت شناخت فرستاد نوشت خواند"),
            *["پیدا کرد", "گم کرد", "تعمیر کرد", "رنگ کرد", "جمع کرد", "فراموش کرد", "تمیز کرد", "امتحان کرد"],
        ],
        "i_bought": [
            *_words("خریدم دیدم آوردم فروختم برداشتم فرستادم می‌خوانم می‌بینم می‌فروشم می‌خواهم"),
            *["پیدا کردم", "گم نکردم", "تعمیر می‌کنم", "فراموش نمی‌کنم", "دوست دارم"],
        ],
        "we_bought": _words("خریدیم دیدیم آوردیم فروختیم می‌خوانیم می‌بینیم نمی‌خواهیم می‌شماریم"),
        "we_did": ["بازی کردیم", "منتظر ماندیم", "درس می‌خواندیم", "آواز خواندیم", "کار می‌کنیم", "قدم زدیم"],
        "they_gave": ["دادند", "فروختند", "نشان دادند", "می‌دهند", "می‌فروشند", "بخشیدند"],
        "they_did": ["بازی می‌کنند", "خوابیدند", "می‌دوند", "ایستاده‌اند", "زندگی می‌کنند", "منتظر بودند", "آب می‌خورند"],
        "they_think": ["موافق هستند", "مخالف بودند", "رأی دادند", "ورزش می‌کنند", "کتاب می‌خوانند", "در خانه می‌مانند"],
        "food": _words("""
            نان پنیر برنج کباب ماست سیب‌زمینی گوجه خیار پرتقال انگور هندوانه انار گردو شکلات بستنی چای قهوه
            عسل ماهی مرغ زردآلو گیلاس
        """),
        "ate": ["خورد", "پخت", "آماده کرد", "دوست دارد", "می‌خورد", "سفارش داد"],
        "weather": ["آفتابی", "ابری", "بارانی", "بسیار سرد", "خیلی گرم", "برفی", "خوب و آرام", "طوفانی"],
        "meeting": _words("کنسرت جلسه جشن عروسی نمایش کلاس مسابقه امتحان سخنرانی"),
        "animal": _words("خرگوش میمون ببر پلنگ فیل شتر طوطی گربه سگ اسب روباه گرگ کبوتر پنگوئن شیر مورچه"),
        "color": _words("سفید سیاه قرمز سبز زرد بنفش نارنجی آبی خاکستری"),
        "adjective": _words("""
            بزرگ کوچک قدیمی جدید زیبا سنگین سبک گران ارزان مشهور مهربان خطرناک آرام غمگین شجاع عجیب ساده
            محکم باریک بلند جوان پیر
        """),
        "place": _words("""
            فرودگاه بیمارستان دانشگاه بازار پارک رستوران باغ جنگل کتابخانه ایستگاه مسجد خیابان میدان شهر کوهستان
            ساحل فروشگاه هتل قلعه اداره آشپزخانه روستا آزمایشگاه
        """),
        "city": _words("تهران اصفهان شیراز تبریز مشهد کرمان یزد رشت اهواز همدان قزوین کاشان بوشهر اردبیل گرگان"),
        "thing": _words("""
            کتاب چتر دوربین یخچال گیتار فرش پیراهن کفش ساعت عینک چراغ صندلی تلفن ماشین چمدان کلید کلاه
            مداد دفتر قلم لیوان بشقاب قاشق بالش شمع گلدان اتوبوس قایق موتور
        """),
    },
    "۰۱۲۳۴۵۶۷۸۹",
)

SMALL_ENGLISH = Grammar(
    {
        "sentence": _lines("""
            {event}.
            {event}.
            {event} {time}.
            {time} {event}.
            {state} because {reason}.
            {question}?
            {request}.
            {count}.
        """),
        "event": _lines("""
            {person} {carried} the {adjective} {thing} to the {place}
            {person} {carried} {number} {things} from the {place}
            {person} went to the {place} with {person}
            {person} wanted to buy {number} {things}
            {person} saw a {adjective} {animal} near the {place}
            {person} gave the {thing} to {person}
            {person} opened the {adjective} {thing}
            the {adjective} {animal} was sleeping under the {thing}
            the {color} {animal} was drinking water in the {place}
            the {adjective} {animal} walked to the {place}
            the {color} {thing} was in the {place}
            the weather at the {place} was {weather} and {weather}
        """),
        "state": _lines("""
            {person} was very {mood}
            {person} opened the {thing}
            {person} went to the {place}
            the {animal} walked to the {place}
        """),
        "reason": _lines("""
            the weather was {weather}
            the {thing} was {adjective}
            {person} was {mood}
            the {place} was closed
            there was no {food}
        """),
        "question": _lines("""
            where is the {adjective} {color} {thing}
            who {carried} the {color} {thing} {time}
            how many {color} {things} are in the {place}
            why was {person} so {mood} {time}
            did {person} forget the {adjective} {thing}
            would you like some {food} and {number} {things}
        """),
        "request": _lines("""
            please bring {number} {things} to the {place}
            please give {person} some {food} and {food}
            please open the {adjective} {color} {thing}
            thank you for the {food} and the {adjective} {thing}
        """),
        "count": _lines("""
            my number is {digit} {digit} {digit} {digit}
            the numbers are {digit}, {digit} and {digit}
            we need {number} {things} and {number} {things}
            the answer is {digit} {digit} {digit}
        """),
        "person": _lines("""
            my father
            my mother
            your brother
            your sister
            the teacher
            the doctor
            the old man
            the young woman
            the children
            our friend
            the farmer
            the student
        """),
        "carried": _words("carried brought moved returned"),
        "thing": _words("book table chair window door box bottle picture basket blanket umbrella"),
        "things": _words("books tables chairs windows boxes bottles pictures apples flowers baskets potatoes tickets"),
        "place": _words("house garden kitchen market school river station hospital village bridge mountain office"),
        "animal": _words("dog rabbit horse elephant monkey tiger"),
        "adjective": _words("big small old new heavy beautiful empty broken"),
        "color": _words("red blue green yellow black white"),
        "weather": _words("cold warm sunny terrible wonderful"),
        "mood": _words("happy angry tired hungry busy"),
        "food": _words("bread water coffee chocolate cheese chicken"),
        "time": [
            "in the morning",
            "in the evening",
            "last night",
            "yesterday",
            "last summer",
            "every day",
            "on Monday",
            "on Friday",
        ],
        "number": _words("two five six seven eight nine ten eleven twelve twenty"),
        "digit": _words("zero one two three four five six seven eight nine"),
    },
    "0123456789",
)

GRAMMARS = {"wide": {"en": ENGLISH, "fa": PERSIAN}, "small": {"en": SMALL_ENGLISH}}  # by vocabulary and language
