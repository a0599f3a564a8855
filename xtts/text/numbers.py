"""Numbers in words: the grammar that English and Persian share, in groups of three digits."""

from typing import List, NamedTuple, Sequence

MAX_DIGITS = 18  # of one number; longer ones are read digit by digit


class NumberWords(NamedTuple):
    """The words of a language for numbers."""

    small: Sequence[str]  # 0 to 19
    tens: Sequence[str]  # at 2 to 9
    hundreds: Sequence[str]  # at 1 to 9
    scales: Sequence[str]  # "", thousand, million and so on
    joined_by: str  # what stands between the parts of a number
    one_thousand: bool  # whether 1000 is "one thousand" and not only "thousand"

    def cardinal(self, digits: str) -> str:
        """21 is twenty one; 007, and whatever has more than MAX_DIGITS, is read digit by digit."""
        if len(digits) > MAX_DIGITS or (digits.startswith("0") and len(digits) > 1):
            return self.digit_by_digit(digits)
        parts: List[str] = []
        number = int(digits)
        for power in range(len(self.scales) - 1, -1, -1):
            group, number = divmod(number, 1000**power)
            if group == 1 and power == 1 and not self.one_thousand:
                parts.append(self.scales[1])
            elif group:
                parts.append(f"{self.joined_by.join(self._below_thousand(group))} {self.scales[power]}".strip())
        return self.joined_by.join(parts) or self.small[0]

    def digit_by_digit(self, digits: str) -> str:
        """Each digit by its name."""
        return " ".join(self.small[int(digit)] for digit in digits)

    def _below_thousand(self, number: int) -> List[str]:
        hundreds, rest = divmod(number, 100)
        words = [self.hundreds[hundreds]] if hundreds else []
        if rest >= 20:
            words.append(self.tens[rest // 10])
            rest %= 10
        return [*words, self.small[rest]] if rest else words
