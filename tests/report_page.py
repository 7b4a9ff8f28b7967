"""The page of a report in a browser, as its reader sees and uses it."""


class Page:
    """What a reader can see and do."""

    def __init__(self, browser):
        self.run = browser.execute_script
        self.browser = browser

    def find(self, selector):
        return self.browser.find_element("css selector", selector)

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def column(self, number):
        return self.run(
            "const rows = [...document.querySelectorAll('#table tbody tr:not(.detail)')];"
            "return rows.map(row => row.cells[arguments[0]].innerText)",
            number,
        )

    def choose(self, name, value):
        self.run(
            "const i = document.getElementById('filter-' + arguments[0]); i.value = arguments[1];"
            "i.dispatchEvent(new Event(i.tagName === 'SELECT' ? 'change' : 'input'));",
            name,
            value,
        )

    def sort(self, title):
        next(button for button in self.all("th button") if button.text == title).click()

    @property
    def count(self):
        return self.find("#count").text

    def press(self, *keys):
        self.browser.switch_to.active_element.send_keys(*keys)

    @property
    def focused(self):
        return self.run("return document.activeElement.outerHTML")


def contrast(one, other):
    """The ratio of luminances (WCAG 2.1)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
