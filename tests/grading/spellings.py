r"""Numbers, units, labels and equations in other spellings, in classes like those of classes.py."""

from tests.grading.classes import Rows

APPROXIMATIONS: Rows = [
    (
        r"\frac{2}{3}",
        [r"\frac{2}{3}\approx 0.667", r"\frac23 \approx 0.67", r"x = \frac{2}{3} \approx 0.6667"],
        [r"\frac{3}{2}\approx 0.667", r"\frac{3}{5} \approx 0.6"],
    ),
    ("12.3", [r"\frac{37}{3}\approx 12.3"], [r"\frac{37}{4}\approx 9.25", r"12.4 \approx \frac{37}{3}"]),
    (r"\sqrt{2}", [r"\sqrt{2}\approx 1.41", r"\sqrt2 \approx 1.414"], [r"\sqrt{3}\approx 1.73", r"1.41 \approx 1.42"]),
    ("3.14", [r"\pi \approx 3.14"], [r"\pi", r"\pi\approx 3.1"]),
    (r"5\pi", [r"5\pi \approx 15.7", r"5\pi \text{ cm} \approx 15.7 \text{ cm}"], [r"4\pi\approx 12.57"]),
    ("100", [r"99.7 \approx 100", r"100 \approx 99.7"], [r"99.7 \approx 101", r"x \approx 1000"]),
]

TIMES: Rows = [
    (
        r"4:30 \text{ p.m.}",
        [r"4\!:\!30\text{ p.m.}"],
        [r"4:30\text{ a.m.}", "4:03", r"5:30 \text{ p.m.}", "4", r"\frac{4}{30}", r"4.5"],
    ),
    ("10:05", [r"10\!:\!05", r"10{:}05"], ["10:50", "10.05", "2", "10"]),
    (
        r"2:00\text{ PM}",
        ["2:00 \\text{PM}"],
        [r"2:00\text{ AM}", "2:20", r"12:00\text{ PM}"],
    ),
]

CHOICES: Rows = [
    (
        "C",
        [r"\textbf{(C) } 12", r"\text{(C)}\ 12", "C. 12", r"\text{C}", "(C)", r"(C)\ \frac12"],
        ["D", r"\textbf{(D) } 12", "12", "BC", "c+1"],
    ),
    (r"\text{(C)}", ["C", r"\text{C}", r"\textbf{(C)}\ 3"], ["B", r"\text{(B)}", r"\textbf{(B)}\ 3"]),
    (
        r"\textbf{(B) } 7",
        ["7", "B", r"\text{(B)}", r"\text{(B)}\ 7"],
        ["8", "C", r"\textbf{(C) } 7", r"\textbf{(B) } 8"],
    ),
    (
        r"\text{(E) none of these}",
        ["E", r"\text{(E)}", r"\text{none of these}"],
        ["D", r"\text{(D) none of these}", r"\text{all of these}"],
    ),
    ("12", [r"\textbf{(C) } 12"], [r"\textbf{(C) } 13", r"\textbf{(C)}"]),
]

ORDINALS: Rows = [
    (
        "12",
        [
            r"12\text{th grade}",
            r"12^{\text{th}}\text{ grade}",
            "12th",
            r"12^\text{th}",
            r"12\text{th}",
            r"12^{th}\text{ day}",
        ],
        [r"13\text{th grade}", r"\frac{1}{12}\text{th}", r"12^{n}"],
    ),
    (r"12\text{th grade}", ["12", "12th grade", r"\text{12th grade}"], ["11", r"11\text{th grade}"]),
    (r"3\text{rd}", ["3", "3^{rd}", r"3^{\text{rd}}"], [r"4\text{th}", r"\frac13"]),
    ("21", [r"21^{\text{st}}", r"21\text{st century}"], [r"22^{\text{nd}}"]),
    ("32348", [r"32,\!348", r"32,\! 348", r"32, \!348", r"32{,} 348", r"32\,348"], ["32, 348.5", "32.348", "32,34,8"]),
    (r"32,\! 348", ["32348", "32,348"], ["32, 349", "348"]),
    (
        "4",
        [r"4\text{ (mod 6)}", r"4 (mod 6)", r"4\pmod 6", r"x \equiv 4 \pmod{6}"],
        [r"5 \pmod 6", r"10\pmod 6", r"4\text{ (mod 3)}"],
    ),
    (r"4 \pmod{6}", ["4", r"x\equiv 4\pmod{6}", r"4 (mod 6)"], [r"4\pmod{7}", "5", r"2 \pmod 6"]),
]

BASES: Rows = [
    ("4343_6", ["4343_{6}", "4343", r"4343_{\text{six}}", r"(4343)_6"], ["4343_7", "4344_6", "4334_6", "1023"]),
    ("1010_2", ["1010_{2}", "1010", r"(1010)_2"], ["1010_3", "1011_2", "10"]),
    (r"2A_{16}", [r"2A_{16}", r"\text{2A}_{16}"], ["2B_{16}", "2A_{15}"]),
    ("204_8", ["204", "204_{8}"], ["204_{10}", "204_9", "132"]),
    ("132", ["132_{10}"], ["204_8", "132_8", "132_5"]),
]

PLUS_MINUS: Rows = [
    (
        r"\pm 2",
        [r"2, -2", r"\pm\, 2", r"x=\pm2", r"\{-2,2\}", r"\mp 2", r"-2\text{ or }2", r"\pm \sqrt{4}"],
        ["2", "-2", r"\pm 3", "2,-3", "2,2"],
    ),
    (
        r"1 \pm \sqrt{2}",
        [r"1+\sqrt2, 1-\sqrt2", r"\{1-\sqrt{2}, 1+\sqrt{2}\}", r"\frac{2 \pm \sqrt{8}}{2}", r"1 \mp \sqrt2"],
        [r"1+\sqrt{2}", r"-1 \pm \sqrt{2}", r"1 \pm 2", r"1\pm\sqrt3"],
    ),
    (
        r"\frac{3+\sqrt{5}}{2}, \frac{3-\sqrt{5}}{2}",
        [r"\frac{3\pm\sqrt{5}}{2}"],
        [r"\frac{3\pm\sqrt{6}}{2}", r"\frac{-3\pm\sqrt{5}}{2}"],
    ),
    (r"x=\pm 3", ["3,-3", r"x=3\text{ or }x=-3", r"\pm 3"], ["x=3", "x=-3", r"x=\pm 9"]),
]

CHEMISTRY: Rows = [
    (
        r"\text{H}_2\text{O}",
        ["H_2O", r"\mathrm{H_2O}", r"\mathrm{H}_2\mathrm{O}", r"{\rm H_2O}", r"\text{H}_{2}\text{O}"],
        [r"\text{H}_2\text{O}_2", r"\mathrm{HO_2}", r"\text{CO}_2", r"\text{H}_2\text{S}"],
    ),
    (r"\mathrm{CO_2}", [r"\text{CO}_2", "CO_2"], [r"\mathrm{CO}", r"\mathrm{Co_2}", r"\mathrm{C_2O}"]),
    (r"\mathrm{CO}", [r"\text{CO}", "CO"], [r"\mathrm{Co}", r"\text{Co}", r"\mathrm{CO_2}"]),
    (r"\text{NO}", [r"\text{No}", "no"], [r"\text{ON}"]),
    (r"\mathrm{NaCl}", [r"\text{NaCl}", "NaCl"], [r"\text{KCl}", r"\text{NaCl}_2"]),
    (r"\mathrm{SO_4^{2-}}", [], [r"\mathrm{SO_3^{2-}}", r"\mathrm{SO_4^{-}}"]),
]

BINOMIALS: Rows = [
    (
        r"\binom{5}{2}",
        [r"{5 \choose 2}", r"{5\choose 2}", r"\dbinom52", "10", r"{5 \choose 3}", r"\tbinom{5}{2}"],
        [r"{2 \choose 5}", r"\frac{5}{2}", r"{5 \choose 4}", r"{6\choose 2}"],
    ),
    (r"\binom{n}{k}", [r"\binom{n}{n-k}", r"\frac{n!}{k!(n-k)!}"], [r"\binom{k}{n}", r"\frac{n!}{(n-k)!}"]),
    (r"\binom{2n}{n}", [r"\frac{(2n)!}{n!n!}"], [r"\binom{2n}{n}+1"]),
    ("(n+1)!", ["(n+1)n!", r"\Gamma(n+2)"], ["n!", "n!+1"]),
    (r"{n \choose 2}", [r"\binom{n}{2}", r"\frac{n(n-1)}{2}"], [r"\binom{n}{3}", r"\frac{n}{2}", r"\frac{n(n+1)}{2}"]),
    ("10", [r"{5 \choose 2}", r"\binom52"], [r"{5 \choose 1}"]),
    (r"2{4 \choose 2}", ["12", r"2\binom{4}{2}"], ["6", "24"]),
]

VECTORS: Rows = [
    (
        r"\langle 2,3\rangle",
        [
            "(2,3)",
            r"\langle 2, 3 \rangle",
            r"\left\langle 2,3\right\rangle",
            r"\begin{pmatrix}2\\3\end{pmatrix}",
            r"<2,3>",
            r"\vec{v} = \langle 2,3 \rangle",
        ],
        [r"\langle 3,2\rangle", "(3,2)", "[2,3]", r"\{2,3\}", r"\langle 2,3,0 \rangle", r"\langle 2\rangle"],
    ),
    (
        r"(1,-2,3)",
        [r"\langle 1,-2,3\rangle", r"\left< 1,-2,3 \right>"],
        [r"\langle 1,2,3\rangle", r"\langle -2,1,3\rangle"],
    ),
    (
        r"\begin{pmatrix} 2 \\ 3 \end{pmatrix}",
        ["(2,3)", r"\langle 2,3 \rangle"],
        ["(3,2)", r"\langle 3,2 \rangle", "2,3,0", "[2,3)"],
    ),
]

MIXED: Rows = [
    (
        "3.5",
        ["3 1/2", r"3\frac{1}{2}", r"3\ 1/2", r"3\,\frac12", r"\frac72", r"3\tfrac{1}{2}"],
        ["31/2", r"3\cdot\frac12", "3/2", "3 1/3", r"3\frac{2}{1}"],
    ),
    (r"3\frac{1}{2}", ["3 1/2", "7/2", "3.5"], ["31/2", r"\frac{3}{2}", "2.5"]),
    (r"-2\frac{1}{4}", ["-2.25", "-2 1/4", r"-\frac{9}{4}"], ["-1.75", r"-\frac{7}{4}", "2.25"]),
    ("31/2", ["15.5", r"15\frac12", "15 1/2"], ["3 1/2", "3.5"]),
    ("3 1/2", ["3.5", r"3\frac12"], ["15.5", "1.5"]),
]

FONTS: Rows = [
    (
        "204",
        [
            r"\large 204",
            r"{\bf 204}",
            r"\bf{204}",
            r"\rm 204",
            r"\texttt{204}",
            r"204 \checkmark",
            r"{\Large 204}",
            r"\huge{204}",
            r"204 <br>",
            r"<b>204</b>",
            r"\mathtt{204}",
            r"204\ \checkmark",
            r"**204**",
            r"\small 204",
            r"\textsc{204}",
            r"204 \blacksquare",
            r"{\large\bf 204}",
            r"\tt 204",
        ],
        [r"\large 205", r"{\bf 20}4x", r"\rm 204 s + 1", r"\texttt{2040}", r"<b>24</b>", r"204 < b", r"204 \star 2"],
    ),
    (
        "5",
        [r"x = 5 \text{ only}", r"5\text{ only}", r"x=5\text{ (only)}"],
        [r"5\text{ only if } x>3", r"x = 6 \text{ only}", r"\text{only if } 5", r"5 \text{ at most}"],
    ),
    ("x^2", [r"{\bf x^2}", r"\mathbf{x}^2", r"\large x^2"], [r"{\bf x}_2", r"\large x^3"]),
    (
        "5",
        [r"5</b>", "<answer>5</answer>", "5</answer>", r"5 \tag{1}", "<b>5</b>"],
        ["<b>6</b>", r"6 \tag{5}", "<x>5</y>", "<5>x"],
    ),
]

EQUATIONS: Rows = [
    (
        "y=2x+1",
        ["2x-y+1=0", "2y=4x+2", "y-1=2x", "y-2x=1", "2x+1=y", r"x=\frac{y-1}{2}", "2x+1"],
        ["y=2x-1", "2x+y+1=0", "y=x+1", "x=2y+1", "y-2x=-1", "2x", "y=0"],
    ),
    (
        "x^2+y^2=4",
        ["4=x^2+y^2", r"\frac{x^2}{4}+\frac{y^2}{4}=1", "x^2+y^2-4=0"],
        ["x^2+y^2=2", "x^2-y^2=4", "x+y=2", "4"],
    ),
    (r"y=\frac{1}{x}", ["xy=1", r"x=\frac1y", r"\frac{1}{x}"], ["xy=2", "x+y=1", r"\frac{x}{y}=1"]),
    ("x=5", ["5=x", "2x=10", "x-5=0"], ["xy=5y", "x^2=25", "0=0", "x=x", "(x-5)(x-6)=0", "x=-5"]),
    (
        "3x-4y+5=0",
        ["6x-8y+10=0", "-3x+4y-5=0", "3x+5=4y", r"y=\frac{3}{4}x+\frac54"],
        ["3x-4y-5=0", "3x+4y+5=0", "3x-4y+5", "x(3x-4y+5)=0"],
    ),
    (
        r"\frac{dy}{dx}+2y=x",
        ["y'+2y=x", r"\frac{dy}{dx}=x-2y", "2y' + 4y = 2x", r"y'+2y-x=0", r"\frac{y'}{2}+y=\frac{x}{2}"],
        ["y'-2y=x", "y''+2y=x", "y+2y=x", r"\frac{dx}{dy}+2y=x", "y'+2y=0", "x"],
    ),
    (
        r"m\ddot{x}+kx=0",
        [r"\ddot{x}+\frac{k}{m}x=0", r"m x''+kx=0", r"m\frac{d^2x}{dt^2}=-kx", r"\ddot{x}=-\frac{k}{m}x"],
        [r"m\ddot{x}-kx=0", r"m\dot{x}+kx=0", r"\ddot{x}+\frac{m}{k}x=0", r"mx+kx=0", "0"],
    ),
    (
        r"\frac{dx}{dt}=kx-a",
        ["x'(t)=kx(t)-a", r"\frac{1}{k}\frac{dx}{dt}=x-\frac{a}{k}"],
        ["x'(t)=kx(t)+a", r"\frac{dx}{dt}=k(x-a)"],
    ),
    (
        r"L\frac{di}{dt}+Ri=v",
        [r"\frac{di}{dt}+\frac{R}{L}i=\frac{v}{L}", r"Li'+Ri-v=0"],
        [r"\frac{di}{dt}+\frac{L}{R}i=\frac{v}{L}", r"R\frac{di}{dt}+Li=v"],
    ),
]

HARD_GOLDS: Rows = [
    (
        r"\text{Monday}",
        ["Monday", "monday", r"\textbf{Monday}", r"\text{Monday.}"],
        [r"\text{Tuesday}", "Mon", "5", r"\text{Monday or Tuesday}"],
    ),
    (
        r"x \mapsto x^2 \mod p \circledast q",
        [r"x\mapsto x^{2} \mod p \circledast q"],
        [r"x \mapsto x^3 \mod p \circledast q", "5"],
    ),
    (
        r"\text{Yes, for all } n \geq 3",
        [r"\text{yes, for all } n\geq 3", r"\text{Yes, for all }n \ge 3"],
        [r"\text{No, for all } n \geq 3", r"\text{Yes, for all } n \geq 4", r"\text{Yes}"],
    ),
    (r"A \Rightarrow B", [r"A\Rightarrow B", r"A \implies B"], [r"B \Rightarrow A", r"A \Leftrightarrow B", "AB"]),
    (
        r"\overline{AB} \parallel \overline{CD}",
        [r"\overline{AB}\parallel\overline{CD}"],
        [r"\overline{AB} \perp \overline{CD}", r"\overline{AB}"],
    ),
    (
        r"\text{all real numbers except } 2",
        [r"\text{All real numbers except }2"],
        [r"\text{all real numbers except } 3", r"2", r"\text{all real numbers}"],
    ),
    (r"5:3:2", ["5:3:2", "5 : 3 : 2"], ["5:2:3", "5:3", "30"]),
    (r"\text{Evelyn}", ["Evelyn", r"\textrm{Evelyn}"], [r"\text{Evel}", r"\text{Angela}"]),
]

# What an audit of 2026-11-24 found: wrong answers that were taken, and right ones that were not.
REPORTED: Rows = [
    (
        "5",
        ["x=5", "5=x", "2+3=5", "x-y=5", "five", r"\text{five}"],
        ["1=5", "3=5", "2x=5", "2x+1=5", "3x=15", "5'", r"5\ldots", r"5\dots", "six", "5.00000001"],
    ),
    (
        "30",
        [r"\theta=30", r"\phi(8)=30", r"a_{10}+a_1=30", r"n \bmod 7=30", r"x=\frac{60}{2}=30"],
        [r"x=\frac{10}{3}=30"],
    ),
    (
        "0.54",
        [r"R=\frac{1.62}{3.01}=0.54", r"\frac{1.62}{3.01}=0.54", "0.538=0.54"],
        ["0.64=0.54", r"4.6\times 10^{-24}=0.54"],
    ),
    ("(x+1)^2", ["x^2+2x+1=(x+1)^2", "f(x)=(x+1)^2"], ["(x+1)^2=0"]),
    ("|x-10|", ["|10-x|"], ["10-x", "x-10"]),
    ("10-x", ["-(x-10)"], ["|x-10|"]),
    (
        "204",
        [r"\text{The answer is 204}"],
        ["203.9999999", r"\text{The answer is not 204}", r"\text{The answer is 205}"],
    ),
    ("0.3", ["0.30000000000000004"], ["0.30000001"]),
    ("(0,1)", ["0<x<1", "1>x>0"], ["0<x<2", r"0\leq x<1", "1<x<0", "0<x>1"]),
    ("[0,1)", [r"0\le x<1"], [r"0\le x\le 1"]),
    (r"(0,\infty)", ["x>0", "0<x<\\infty"], ["x<0", r"x\ge 0", "x>1"]),
    (r"x\leq 3", [r"(-\infty,3]"], [r"(-\infty,3)", r"[3,\infty)"]),
    (r"\pi/6", [r"30^\circ", r"30^{\circ}", r"30\text{ degrees}"], [r"60^\circ", "30"]),
    (r"30^\circ", [r"\frac{\pi}{6}"], [r"\frac{\pi}{3}"]),
    (
        "25",
        [r"\frac{m}{n}=\frac{10}{15}, m+n=25", "m=10, n=15, m+n=25"],
        [r"\frac{m}{n}=\frac{10}{15}, m+n=24", "x=25, y=3", "x=3, y=25", "a+b=25, m+n=30", "x=1, m+n=25"],
    ),
]

SPELLINGS: dict[str, Rows] = {
    "approximations": APPROXIMATIONS,
    "times": TIMES,
    "choices": CHOICES,
    "ordinals": ORDINALS,
    "bases": BASES,
    "plus-minus": PLUS_MINUS,
    "chemistry": CHEMISTRY,
    "binomials": BINOMIALS,
    "vectors": VECTORS,
    "mixed numbers": MIXED,
    "fonts": FONTS,
    "equations": EQUATIONS,
    "hard golds": HARD_GOLDS,
    "reported": REPORTED,
}
