package plaintoml_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/plaintoml"
)

// explain is what is said about a text, empty where it is TOML.
func explain(text string) string {
	_, err := plaintoml.Parse("a.toml", []byte(text))
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "a.toml:")
}

// Each line is a mistake that a newcomer makes, or a habit of another language.
func TestMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"[train][train]", "1: `[train]` with `[train]` behind it; want each [TABLE] on a line of its own"},
		{"lambda  2.0", "1: `lambda  2.0` has no \"=\"; want lambda = 2.0"},
		{"steps: 6", "1: `steps: 6` has no \"=\"; want steps = 6"},
		{"steps := 6", "1: `steps := 6` has no \"=\"; want steps = 6"},
		{"steps == 6", "1: `steps == 6` has more than one \"=\"; want KEY = VALUE"},
		{"[train", "1: `[train` does not end the name of a table; want \"]\" behind a name without blanks, such as [train]"},
		{"[[train]", "1: `[[train]` does not end the name of a table; want as many \"]\" as \"[\""},
		{"[tra in]", "1: `[tra in]` does not end the name of a table; want \"]\" behind a name without blanks, such as [train]"},
		{"[]", "1: `[]` names no table; want a name in the brackets, such as [train]"},
		{"[.a]", "1: `[.a]` names no table; want a name in the brackets, such as [train]"},
		{"a..b = 1", "1: `a..b = 1` has an empty part in its key; want KEY = VALUE"},
		{"= 6", "1: `= 6` has no key; want KEY = VALUE"},
		{"number of steps = 6", "1: `number of steps = 6` has a key of several words; want KEY = VALUE, with a key of one word"},
		{"\"steps = 6\"", "1: `\"steps = 6\"` has no \"=\" behind its key; want KEY = VALUE"},
		{"train:", "1: `train:` has no \"=\"; want KEY = VALUE, or [train] for a table"},
		{"{\"model\": 1}", "1: `{\"model\": 1}` is no key; want KEY = VALUE, or [TABLE]"},
		{"; a comment", "1: `; a comment` is no key; a comment begins with #"},
		{"// a comment", "1: `// a comment` is no key; a comment begins with #"},
		{"steps = 6 // a comment", "1: `steps = 6` with `// a comment` behind it; a comment begins with #"},
		{"steps = 6,", "1: `steps = 6` with `,` behind it; leave it out"},
		{"steps = 6;", "1: `steps = 6` with `;` behind it; leave it out"},
		{"lambda = 2,5", "1: `lambda = 2` with `,5` behind it; want a number with a point for its decimals (2.5) and without commas (1000)"},
		{"steps = 1,000", "1: `steps = 1` with `,000` behind it; want a number with a point for its decimals (2.5) and without commas (1000)"},
		{"steps = 6k", "1: `steps = 6` with `k` behind it; want one KEY = VALUE or [TABLE] in a line; a string needs quotes"},
		{"layers = 1 width = 2", "1: `layers = 1` with `width = 2` behind it; want one KEY = VALUE or [TABLE] in a line; a string needs quotes"},
		{"steps =", "1: `steps =` is not finished; want KEY = VALUE, or [TABLE]"},
		{"steps = # none", "1: `steps = # none` has no value; want KEY = VALUE; leave the key out for its default"},
		{"steps = .5", "1: `.5` is no number; want a digit before the point, such as 0.5"},
		{"steps = 2.", "1: `2.` is no number; want digits on both sides of the point"},
		{"steps = - 2", "1: `- 2` is no number; want digits behind the sign; a string needs quotes"},
		{"steps = 06", "1: `06` is no number: cannot have leading zeroes"},
		{"steps = 1_000_", "1: `1_000_` is no number: underscores must be surrounded by digits"},
		{"steps = 99999999999999999999", "1: `99999999999999999999` is larger than an integer of TOML can be; want at most 9223372036854775807 in size"},
		{"rate = 1e999", "1: `1e999` is larger than a number of TOML can be; want at most 1.7e308 in size"},
		{"rate = 1e", "1: `1e` is no number"},
		{"steps = 0xZZ", "1: `0xZZ` is no hexadecimal number"},
		{"steps = 2026-13-45", "1: `2026-13-45` is no date; want YYYY-MM-DD; a string needs quotes"},
		{"on = True", "1: `True` is no value; want true"},
		{"on = None", "1: `None` is no value; leave the key out for its default"},
		{"name = adam", "1: `adam` is no value; a string needs quotes"},
		{"name = “adam”", "1: `“adam”` is no value; want straight quotes: \"…\""},
		{"name = \"adam", `1: the string that begins here has no closing "`},
		{"name = 'adam", `1: the string that begins here has no closing '`},
		{"name = \"\"\"adam", `1: the string that begins here has no closing """`},
		{"name = \"C:\\data\"", `1: a \ in double quotes begins a special character; want \\ for a \, or single quotes: 'C:\runs'`},
		{"[", "1: `[` names no table; want a name in the brackets, such as [train]"},
		{"a", "1: `a` has no \"=\"; want KEY = VALUE"},
		{"list = [1,", "1: `list = [1,` is not finished; want KEY = VALUE, or [TABLE]"},
		{"\"a", `1: the string that begins here has no closing "`},
		{"name = \"\\x9q\"", `1: a \ in double quotes begins a special character; want \\ for a \, or single quotes: 'C:\runs'`},
		{"list = [1 2]", "1: the array list goes on with `2]`; want \",\" between its elements and \"]\" behind the last"},
		{"list = [1,,2]", "1: `list = [1,,2]` has a comma where a value or key should be; leave it out"},
		{"table = {a = 1 b = 2}", "1: the table in braces goes on with `b = 2}` behind table.a; want \",\" between its keys and \"}\" behind the last"},
		{"table = {a = 1", `1: the table in braces ends with the text behind table.a; want "," between its keys and "}" behind the last`},
		{"steps = 1\nsteps = 2", `2: steps is given a second time, after line 1; want it once`},
		{"[a]\n[a]", `2: [a] is given a second time, after line 1; want it once, with all its keys`},
		{"[a]\n[[a]]", `2: [[a]], but a is one table since line 1; want [[a]] each time, or [a] once`},
		{"a = 1\n[a.b]", `2: [a.b], but a has a value; want a value or a table`},
		{"name = \"x\"\u0000", `1: a control character, 0x00; want UTF-8 text`},
		{"a = 1\rb = 2", `1: a carriage return that ends no line; want lines that end in LF or CR LF`},
	} {
		if got := strings.Replace(explain(c.text), "not valid TOML: ", "", 1); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

// FuzzParse: whatever the text, the line is one of the text, and the message one line.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"[a][a]", "a  1", "a = \"\"\"x", "a = [1\n2]", "\x00", "a = 1\r"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := plaintoml.Parse("a.toml", []byte(text))
		if err == nil {
			return
		}
		e, ok := errors.AsType[*plaintoml.Error](err)
		if !ok || e.Line < 1 || e.Line > 1+strings.Count(text, "\n") || e.Msg == "" || strings.Contains(e.Error(), "\n") {
			t.Errorf("%q: %+v", text, err)
		}
	})
}
