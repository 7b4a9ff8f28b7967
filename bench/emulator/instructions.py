"""Translate the PTX of an `asm` statement to C++: its instructions by a table, its registers as variables."""

import re
from collections.abc import Callable, Iterator, Sequence

_TYPES = {"b8": "unsigned char", "u8": "unsigned char", "s8": "signed char", "b16": "unsigned short"}
_TYPES |= {"u16": "unsigned short", "s16": "short", "b32": "unsigned", "u32": "unsigned", "s32": "int", "f32": "float"}
_TYPES |= {"b64": "unsigned long long", "u64": "unsigned long long", "s64": "long long", "f64": "double"}
_TYPES |= {"pred": "bool", "f16x2": "unsigned", "bf16x2": "unsigned", "f16": "unsigned short", "bf16": "unsigned short"}
_SPECIAL = {
    "laneid": "emu::lane()",
    "warpid": "emu::ptx::warp_of_block()",
    "smid": "0u",
    "nsmid": "1u",
    "clock": "unsigned(emu::clock())",
    "clock64": "emu::clock()",
    "globaltimer": "emu::clock()",
    "lanemask_eq": "(1u << emu::lane())",
    "lanemask_lt": "emu::ptx::lanes_below()",
    "lanemask_le": "(emu::ptx::lanes_below() << 1 | 1u)",
    "lanemask_gt": "~(emu::ptx::lanes_below() << 1 | 1u)",
    "lanemask_ge": "~emu::ptx::lanes_below()",
    "cluster_ctarank": "emu::cluster_rank()",
    "cluster_nctarank": "emu::cluster_size()",
}
for _name, _value in (("tid", "threadIdx"), ("ntid", "blockDim"), ("ctaid", "blockIdx"), ("nctaid", "gridDim")):
    _SPECIAL |= {f"{_name}.{axis}": f"{_value}.{axis}" for axis in "xyz"}


class UnknownInstructionError(Exception):
    """An instruction that the table lacks; the message is its text."""


def split(text: str, separator: str) -> list[str]:
    """Split a text at separators outside of brackets, strings and `::`."""
    parts, depth, at = [], 0, 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[()\[\]{}]|::|' + re.escape(separator), text):
        if token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            depth -= 1
        elif depth == 0 and token[0] == separator:
            parts.append(text[at : token.start()])
            at = token.end()
        elif depth == 0 and token[0] == "::" and separator == ":":
            parts += [text[at : token.start()], ""]
            at = token.end()
    return [*parts, text[at:]]


class Translator:
    """Translates one `asm` statement to C++. registers: the C++ variables for the registers that it declares."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self.registers: dict[str, str] = {}

    def code(self, template: str) -> Iterator[str]:
        template = re.sub(r"//[^\n]*|/\*.*?\*/", " ", template, flags=re.DOTALL)
        waits = re.search(r"mbarrier\.(?:try|test)_wait[.\w:]*\s+[%\w]+\s*,\s*([^;]*);", template)
        if waits and re.search(r"\bbra(?:\.uni)?\b", template):  # a loop around a wait is a wait
            address, parity, *_ = split(waits[1], ",")
            words = f"unsigned({self.address(address)}), unsigned({self.value(parity)})"
            yield f"emu::mbarrier_wait({words}, emu::Site::current());"
            return
        if re.search(r"\.cc\.", template):
            yield "[[maybe_unused]] bool emu_carry = false, emu_no_carry;"
        elif left_elsewhere := re.search(r"\b(?:add|sub|mad)c\.[.\w]+", template):
            raise UnknownInstructionError(left_elsewhere[0])
        for line in _blocks_opened(template).split(";"):
            if words := line.strip():
                yield self.instruction(words)

    def instruction(self, words: str) -> str:
        if words.startswith(".reg"):
            return self.declaration(words)
        if guard := re.match(r"@(!?)(%?\w+)\s+", words):
            return f"if ({guard[1]}{self.value(guard[2])}) {{ {self.instruction(words[guard.end() :])} }}"
        opcode, _, rest = words.partition(" ")
        args = [arg.strip() for arg in split(rest.strip(), ",")] if rest.strip() else []
        for pattern, make in _TABLE:
            if match := re.fullmatch(pattern, opcode):
                try:
                    return make(self, match, args)
                except (IndexError, ValueError, KeyError):
                    break
        raise UnknownInstructionError(opcode)

    def declaration(self, words: str) -> str:
        match = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", words, re.DOTALL)
        if not match or match[1] not in _TYPES:
            raise UnknownInstructionError(words)
        names = []
        for name in re.split(r"[\s,]+", match[2].strip()):
            if several := re.fullmatch(r"(%?\w+)<(\d+)>", name):
                names += [f"{several[1]}{i}" for i in range(int(several[2]))]
            else:
                names.append(name)
        fresh = {name.lstrip("%"): f"emu_own_{name.lstrip('%')}" for name in names}
        self.registers |= fresh
        return " ".join(f"[[maybe_unused]] {_TYPES[match[1]]} {name};" for name in fresh.values())

    def value(self, text: str) -> str:
        """Return an operand, a register, a special register or a constant as a C++ expression."""
        text = text.strip()
        name, operand = text.lstrip("%"), re.fullmatch(r"%(?:\[(\w+)\]|(\w+))", text)
        if operand and (known := self.names.get(operand[1] or operand[2])):
            return known
        if expression := self.registers.get(name) or (_SPECIAL.get(name) if text.startswith("%") else None):
            return expression
        if constant := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text):
            return f"__builtin_bit_cast(float, 0x{constant[1]}u)"
        if re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?", text):
            return text
        raise UnknownInstructionError(text)

    def address(self, text: str) -> str:
        """Return the C++ expression of the 64-bit address `[register + offset]`."""
        match = re.fullmatch(r"\[\s*([^+\s\]]+)\s*(?:\+\s*([^\]]+?)\s*)?\]", text.strip())
        if not match:
            raise UnknownInstructionError(text)
        base = f"emu::ptx::as<unsigned long long>({self.value(match[1])})"
        return f"({base} + {self.value(match[2])})" if match[2] else base

    def pointer(self, space: str, type_: str, text: str) -> str:
        where = "cluster" if space == "shared::cluster" else "shared" if space.startswith("shared") else "generic"
        return f"emu::ptx::{where}<{type_}>({self.address(text)}, emu::Site::current())"

    def several(self, text: str) -> list[str]:
        """Return the C++ expressions of the registers in `{a, b}`, or of a single register without braces."""
        text = text.strip()
        return [self.value(word) for word in (text[1:-1].split(",") if text.startswith("{") else [text])]

    def put(self, to: str, type_: str, value: str) -> str:
        return "" if to.strip() == "_" else f"emu::ptx::put({self.value(to)}, static_cast<{type_}>({value}));"


def _blocks_opened(template: str) -> str:
    """Return the template without the braces of blocks, but with the braces around registers."""
    pieces, at = [], 0
    for match in re.finditer(r"\{[^{};]*\}", template):
        pieces += [re.sub(r"[{}]", ";", template[at : match.start()]), match[0]]
        at = match.end()
    return "".join([*pieces, re.sub(r"[{}]", ";", template[at:])])


_Make = Callable[[Translator, re.Match[str], Sequence[str]], str]


def _as(t: Translator, type_: str, text: str) -> str:
    return f"emu::ptx::as<{type_}>({t.value(text)})"


def _formula(formula: str, widens: bool = False) -> _Make:
    """Return a function that writes `d = formula` in C++; the last part of the opcode is the type of a, b and c.

    widens: d and c are twice as wide as a and b.
    """

    def make(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
        type_ = _TYPES[match[match.re.groups]]
        wide = f"emu::ptx::Wide<{type_}>" if widens else type_
        types = {"a": type_, "b": type_, "c": wide}
        words = {name: _as(t, types[name], arg) for name, arg in zip("abc", args[1:], strict=False)}
        return t.put(args[0], wide, re.sub(r"\b[abc]\b", lambda m: words[m[0]], formula).replace("TYPE", type_))

    return make


def _with_carry(name: str, function: str, operands: str) -> Iterator[tuple[str, _Make]]:
    """Yield the three forms of an instruction: it sets a carry, uses one, or does both."""
    for taken, given in (("", "false"), ("c", "emu_carry")):
        for left, to in ((r"\.cc", "emu_carry"), ("", "emu_no_carry")):
            if taken or left:
                made = _formula(f"emu::ptx::{function}({operands}, {given}, {to})")
                yield rf"{name}{taken}(?:\.lo|\.hi)?{left}\.([us](?:32|64))", made


def _moved(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
    type_, (to, source) = _TYPES[match[1]], args
    if source.startswith("{"):
        parts = t.several(source)
        array = f"const std::remove_cvref_t<decltype({parts[0]})> emu_parts[] = {{{', '.join(parts)}}};"
        return f"{{ {array} {t.put(to, type_, f'emu::ptx::joined<{type_}>(emu_parts)')} }}"
    if to.startswith("{"):
        parts = t.several(to)
        pieces = [f"emu::ptx::piece<{len(parts)}, {i}>({_as(t, type_, source)})" for i in range(len(parts))]
        return "".join(f"emu::ptx::put({part}, {piece});" for part, piece in zip(parts, pieces, strict=True))
    return t.put(to, type_, _as(t, type_, source))


def _loaded(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
    to, type_ = t.several(args[0]), _TYPES[match["type"]]
    count = int((match["vector"] or "1").strip(".v"))
    value = f"emu::ptx::load<{type_}, {count}>({t.pointer(match['space'] or '', type_, args[1])})"
    puts = "".join(f" emu::ptx::put({register}, emu_loaded.e[{i}]);" for i, register in enumerate(to))
    return f"{{ const auto emu_loaded = {value};{puts} }}"


def _stored(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
    type_, values = _TYPES[match["type"]], t.several(args[1])
    count = int((match["vector"] or "1").strip(".v"))
    parts = ", ".join(f"emu::ptx::as<{type_}>({value})" for value in values)
    to = t.pointer(match["space"] or "", type_, args[0])
    return f"emu::ptx::store<{type_}, {count}>({to}, emu::ptx::Vector<{type_}, {count}>{{{{{parts}}}}});"


def _atomic(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
    type_, operation = _TYPES[match["type"]], match["operation"]
    returns = match["red"] == "atom"
    at, *values = args[1:] if returns else args
    name = {"cas": "CAS", "exch": "Exch"}.get(operation, operation.title())
    given = ", ".join([t.pointer(match["space"] or "", type_, at), *(_as(t, type_, value) for value in values)])
    return t.put(args[0], type_, f"atomic{name}({given})") if returns else f"atomic{name}({given});"


def _compared(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
    symbol = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    symbol |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
    type_ = _TYPES[match[3]]
    joins = {"and": "&&", "or": "||", "xor": "!="}
    also = f" {joins[match[2]]} {t.value(args[3])}" if match[2] else ""
    return f"{t.value(args[0])} = ({_as(t, type_, args[1])} {symbol[match[1]]} {_as(t, type_, args[2])}){also};"


def _copied(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
    to, source, count = t.pointer("shared", "void", args[0]), t.pointer("", "const void", args[1]), t.value(args[2])
    filled = t.value(args[3]) if len(args) > 3 and not match["hint"] else count
    return f"emu::copy_async({to}, {source}, unsigned({count}), unsigned({filled}), emu::Site::current());"


def _matrices(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
    registers, count = t.several(args[0]), match[1]
    puts = "".join(f" emu::ptx::put({register}, emu_r[{i}]);" for i, register in enumerate(registers))
    turned = "true" if match[2] else "false"
    load = f"::ptx::twins::load_matrix<{count}, {turned}>(emu_r, unsigned({t.address(args[1])}), emu::Site::current());"
    return f"{{ unsigned emu_r[{count}]; {load}{puts} }}"


_PRODUCTS = {
    "m16n8k16.f32.f16.f16.f32": ("Packed<__half>", "Wide", 4, 2, 4),
    "m16n8k16.f16.f16.f16.f16": ("Packed<__half>", "Halves", 4, 2, 2),
    "m16n8k16.f32.bf16.bf16.f32": ("Packed<__nv_bfloat16>", "Wide", 4, 2, 4),
    "m16n8k8.f32.tf32.tf32.f32": ("Tf32", "Wide", 4, 2, 4),
    "m16n8k32.s32.s8.s8.s32": ("Bytes", "Whole", 4, 2, 4),
}


def _multiplied(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
    operands, sums, of_a, of_b, of_d = _PRODUCTS[f"{match[1]}.{match[2]}"]
    type_ = {"Wide": "float", "Whole": "int", "Halves": "unsigned"}[sums]

    def array(name: str, type_: str, text: str, count: int) -> str:
        values = [f"emu::ptx::as<{type_}>({value})" for value in t.several(text)]
        if len(values) != count:
            raise UnknownInstructionError(match[0])
        return f"{type_} {name}[] = {{{', '.join(values)}}};"

    arrays = (array("emu_d", type_, args[3], of_d), array("emu_a", "unsigned", args[1], of_a))
    kind = f"::ptx::twins::{operands}, ::ptx::twins::{sums}"
    product = f"::ptx::twins::multiply<{kind}>(emu_d, emu_a, emu_b, emu::Site::current());"
    puts = "".join(f" emu::ptx::put({to}, emu_d[{i}]);" for i, to in enumerate(t.several(args[0])))
    return f"{{ {' '.join(arrays)} {array('emu_b', 'unsigned', args[2], of_b)} {product}{puts} }}"


def _shuffled(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
    mode = {"idx": 0, "bfly": 1, "down": 2, "up": 3}[match[1]]
    to, _, inside = args[0].partition("|")
    words = ", ".join(f"unsigned({_as(t, 'unsigned', arg)})" for arg in args[1:])
    value = f"emu::ptx::shuffled<{mode}>({words}, emu_in, emu::Site::current())"
    assignment = f" {t.value(inside)} = emu_in;" if inside else ""
    return f"{{ bool emu_in; {t.put(to, 'unsigned', value)}{assignment} }}"


def _call(code: str) -> _Make:
    """Return a function that writes the statement `code` for the arguments of an instruction.

    In `code`, V0 stands for argument 0 unchanged, U0 for the same as a 32-bit integer, F0 as a float, A0 as an address
    in shared memory, and OP for the first group in the match of the opcode.
    """

    def make(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
        words: dict[str, Callable[[str], str]] = {"V": t.value, "U": lambda a: _as(t, "unsigned", a)}
        words |= {"F": lambda a: _as(t, "float", a), "A": lambda a: f"unsigned({t.address(a)})"}
        named = code.replace("OP", match[1]) if "OP" in code else code
        code_ = re.sub(r"\b([VUFA])(\d)\b", lambda m: words[m[1]](args[int(m[2])]), named)
        return code_.replace("SITE", "emu::Site::current()")

    return make


def _synchronised(t: Translator, match: re.Match[str], args: Sequence[str]) -> str:
    is_of_block = len(args) == 1 and args[0] == "0"
    return _call("emu::block_barrier(SITE);" if is_of_block else "emu::named_barrier(U0, U1, SITE);")(t, match, args)


_ARITHMETIC = r"(?:\.lo|\.wide|\.rn|\.rz|\.ftz|\.sat|\.approx|\.full)*"
_SPACE = r"(?:\.(?P<space>global|shared(?:::\w+)?|local|const))?"
_HINTS = (
    r"(?:\.(?:volatile|relaxed|acquire|release|acq_rel|weak|gpu|cta|sys|cluster|nc|ca|cg|cs|cv|lu|wb|wt|L[12]::\w+))*"
)
_TYPED = r"\.([usbf]\d+)"
_TABLE: tuple[tuple[str, _Make], ...] = (
    (r"mov\.(\w+)", _moved),
    (r"add" + _ARITHMETIC + _TYPED, _formula("a + b")),
    (r"sub" + _ARITHMETIC + _TYPED, _formula("a - b")),
    (r"mul(?:\.lo|\.rn|\.ftz)*" + _TYPED, _formula("a * b")),
    (r"div(?:\.rn|\.full|\.approx|\.ftz)*" + _TYPED, _formula("a / b")),
    (r"(?:fma|mad)(?:\.rn|\.ftz)+" + r"\.(f\d+)", _formula("std::fma(a, b, c)")),
    (r"mad\.lo" + _TYPED, _formula("a * b + c")),
    (r"mul\.hi\.([us](?:32|64))", _formula("emu::ptx::high(a, b)")),
    (r"mad\.hi\.([us](?:32|64))", _formula("emu::ptx::high(a, b) + c")),
    (r"mul\.wide\.([us](?:16|32))", _formula("emu::ptx::wide(a, b)", widens=True)),
    (r"mad\.wide\.([us](?:16|32))", _formula("emu::ptx::wide(a, b) + c", widens=True)),
    *_with_carry("add", "sum", "a, b"),
    *_with_carry("sub", "difference", "a, b"),
    *_with_carry(r"mad(?=c?\.lo)", "sum", "a * b, c"),
    *_with_carry(r"mad(?=c?\.hi)", "sum", "emu::ptx::high(a, b), c"),
    (r"min(?:\.ftz)?" + _TYPED, _formula("min(a, b)")),
    (r"max(?:\.ftz)?" + _TYPED, _formula("max(a, b)")),
    (r"neg(?:\.ftz)?" + _TYPED, _formula("-a")),
    (r"abs(?:\.ftz)?" + _TYPED, _formula("a < 0 ? -a : a")),
    (r"and\.(b\d+|pred)", _formula("a & b")),
    (r"or\.(b\d+|pred)", _formula("a | b")),
    (r"xor\.(b\d+|pred)", _formula("a ^ b")),
    (r"not\.(b\d+)", _formula("~a")),
    (r"shl\.(b\d+)", _formula("b < sizeof(a) * 8 ? a << b : 0")),
    (r"shr\.([ub]\d+)", _formula("b < sizeof(a) * 8 ? a >> b : 0")),
    (r"ex2\.approx(?:\.ftz)?\.(f32)", _formula("std::exp2(a)")),
    (r"lg2\.approx(?:\.ftz)?\.(f32)", _formula("std::log2(a)")),
    (r"rcp\.(?:approx|rn)(?:\.ftz)?\.(f\d+)", _formula("1 / a")),
    (r"rsqrt\.approx(?:\.ftz)?\.(f\d+)", _formula("1 / std::sqrt(a)")),
    (r"sqrt\.(?:approx|rn)(?:\.ftz)?\.(f\d+)", _formula("std::sqrt(a)")),
    *((rf"{name}\.approx(?:\.ftz)?\.(f32)", _formula(f"std::{name}(a)")) for name in ("sin", "cos", "tanh")),
    (r"popc\.(b32)", _formula("unsigned(__popc(a))")),
    (r"clz\.(b32)", _formula("unsigned(__clz(int(a)))")),
    (r"brev\.(b32)", _formula("__brev(a)")),
    (r"bfe\.(u32)", _formula("emu::ptx::bits_of_field(a, b, c)")),
    (r"prmt\.(b32)", _formula("__byte_perm(a, b, c)")),
    (r"bfi\.b32", _call("emu::ptx::put(V0, emu::ptx::insert(U1, U2, U3, U4));")),
    (r"lop3\.b32", _call("emu::ptx::put(V0, emu::ptx::table(U1, U2, U3, U4));")),
    (r"shf\.l\.wrap\.b32", _call("emu::ptx::put(V0, __funnelshift_l(U1, U2, U3));")),
    (r"shf\.r\.wrap\.b32", _call("emu::ptx::put(V0, __funnelshift_r(U1, U2, U3));")),
    (r"dp4a\.s32\.s32", _call("emu::ptx::put(V0, __dp4a(int(U1), int(U2), int(U3)));")),
    (r"dp4a\.u32\.u32", _call("emu::ptx::put(V0, __dp4a(U1, U2, U3));")),
    (r"cvt\.rn\.f16x2\.f32", _call("emu::ptx::put(V0, emu::ptx::pair<__half>(F1, F2));")),
    (r"cvt\.rn\.bf16x2\.f32", _call("emu::ptx::put(V0, emu::ptx::pair<__nv_bfloat16>(F1, F2));")),
    (r"cvt\.rna\.tf32\.f32", _call("emu::ptx::put(V0, ::ptx::to_tf32(F1));")),
    (r"cvt\.rn\.f16\.f32", _call("emu::ptx::put(V0, __half(F1).bits);")),
    (r"cvt\.f32\.f16", _call("emu::ptx::put(V0, float(__half::from_bits(emu::ptx::as<unsigned short>(V1))));")),
    (r"cvt\.([us]\d+)\.[us]\d+", _formula("a")),
    (r"cvta(?:\.to)?\.shared\.u64", _call("emu::ptx::put(V0, __cvta_generic_to_shared((void *)uintptr_t(V1)));")),
    (r"cvta(?:\.to)?\.global\.(u64)", _formula("a")),
    (r"mapa\.shared::cluster\.u32", _call("emu::ptx::put(V0, (U1 & 0xffffff) | U2 << 24);")),
    (r"mapa\.u64", _call("emu::ptx::put(V0, emu::map_shared((void *)uintptr_t(V1), U2, SITE));")),
    (r"setp\.(\w+)(?:\.(and|or|xor))?\.(\w+)", _compared),
    (r"selp\.\w+", _call("emu::ptx::put(V0, V3 ? V1 : V2);")),
    (r"ld" + _HINTS + _SPACE + _HINTS + r"(?P<vector>\.v[24])?\.(?P<type>\w+)", _loaded),
    (r"st" + _HINTS + _SPACE + _HINTS + r"(?P<vector>\.v[24])?\.(?P<type>\w+)", _stored),
    (
        r"(?P<red>red|atom)"
        + _HINTS
        + _SPACE
        + _HINTS
        + r"\.(?P<operation>add|min|max|and|or|xor|exch|cas|inc|dec)(?:\.noftz)?\.(?P<type>[usbf]\d+)",
        _atomic,
    ),
    (r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?P<hint>\.L2::cache_hint)?(?:\.L2::\d+B)?", _copied),
    (r"cp\.async\.commit_group", _call("emu::commit_copies();")),
    (r"cp\.async\.wait_group", _call("emu::wait_copies(unsigned(V0), SITE);")),
    (r"cp\.async\.wait_all", _call("emu::commit_copies(); emu::wait_copies(0, SITE);")),
    (r"ldmatrix\.sync\.aligned(?:\.m8n8)?\.x([124])(\.trans)?\.shared(?:::cta)?\.b16", _matrices),
    (r"mma\.sync\.aligned\.(m\d+n\d+k\d+)\.row\.col\.(\w+\.\w+\.\w+\.\w+)", _multiplied),
    (r"shfl\.sync\.(idx|bfly|down|up)\.b32", _shuffled),
    (r"vote\.sync\.ballot\.b32", _call("emu::ptx::put(V0, __ballot_sync(U2, int(V1), SITE));")),
    (r"redux\.sync\.(add|min|max)\.s32", _call("emu::ptx::put(V0, __reduce_OP_sync(U2, int(U1), SITE));")),
    (r"redux\.sync\.(add|min|max|and|or|xor)\.[ub]32", _call("emu::ptx::put(V0, __reduce_OP_sync(U2, U1, SITE));")),
    (r"activemask\.b32", _call("emu::ptx::put(V0, __activemask(SITE));")),
    (r"bar\.warp\.sync", _call("__syncwarp(unsigned(V0), SITE);")),
    (r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?", _synchronised),
    (r"barrier\.cluster\.arrive[.\w]*", _call("")),
    (r"barrier\.cluster\.wait[.\w]*", _call("emu::cluster_barrier(SITE);")),
    (r"mbarrier\.init(?:\.shared(?:::cta)?)?\.b64", _call("emu::mbarrier_init(A0, U1, SITE);")),
    (
        r"mbarrier\.arrive(?:\.release\.cta)?(?:\.shared(?:::cta)?)?\.b64",
        _call("emu::mbarrier_arrive(A1, emu::own_block, 0, SITE);"),
    ),
    (
        r"mbarrier\.arrive\.expect_tx(?:\.release\.cta)?(?:\.shared(?:::cta)?)?\.b64",
        _call("emu::mbarrier_arrive(A1, emu::own_block, U2, SITE);"),
    ),
    (r"mbarrier\.(?:try|test)_wait\.parity[.\w:]*", _call("emu::mbarrier_wait(A1, U2, SITE); V0 = true;")),
    (r"fence\.proxy\.async[.\w:]*", _call("emu::fence_proxy_async();")),
    (r"fence\.mbarrier_init[.\w:]*", _call("emu::fence_mbarrier_init();")),
    (r"trap", _call("__trap(SITE);")),
    (r"nanosleep\.u32", _call("emu::yield();")),
    (r"createpolicy[.\w:]*", _call("emu::ptx::put(V0, 0ull);")),
    (
        r"membar[.\w]*|fence(?:\.(?:sc|acq_rel|cta|gpu|sys|cluster))*|prefetch[.\w:]*|discard[.\w:]*|griddepcontrol\.\w+",
        _call(""),
    ),
)
