package jinja

import (
	"fmt"
	"math"
	"regexp"
	"strings"
)

var directive = regexp.MustCompile(`%(?:\((\w*)\))?([-0 +]*)([0-9]{0,4})(\.[0-9]{0,4})?([a-zA-Z%]|$)|%`)

// format inserts values into a text, as Python's operator % does.
func (m *machine) format(text string, value any) string {
	values, several := value.(tuple)
	if !several {
		values = tuple{value}
	}
	named, isDict := value.(*Dict)
	next := 0
	m.make(len(text))
	out := directive.ReplaceAllStringFunc(text, func(d string) string {
		p := directive.FindStringSubmatch(d)
		if d == "%%" {
			return "%"
		}
		var v any
		if strings.HasPrefix(d, "%(") && isDict {
			v = m.attribute(named, p[1])
		} else if next++; next <= len(values) {
			v = values[next-1]
		} else {
			m.fail("%%: the text %.100q needs more than %d value(s)", text, len(values))
		}
		i, x, kind := asNumber(v)
		layout := "%" + p[2] + p[3] + p[4] + strings.NewReplacer("i", "d", "u", "d").Replace(p[5])
		switch verb := p[5]; {
		case verb == "s":
			layout, v = "%"+strings.Trim(p[2], "0 +")+p[3]+p[4]+verb, m.str(v)
		case verb != "" && strings.Contains("diuxXo", verb) && kind == 'i' && p[4] == "":
			v = i
		case verb != "" && strings.Contains("fFeE", verb) && kind != 0 && !math.IsNaN(x-x):
			v = x
		default:
			m.fail("%%: the directive %s is not supported for %s", d, typeName(v))
		}
		s := fmt.Sprintf(layout, v)
		m.make(len(s))
		return s
	})
	if next < len(values) && !isDict {
		m.fail("%%: the text has no place for %s", typeName(values[next]))
	}
	return out
}
