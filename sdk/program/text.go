package program

import (
	"fmt"
	"strconv"
	"strings"
)

// String writes the program in its text form, one node per line:
//
//	program absmax.weight(x: float[4,64]) {
//	  %1 = abs %0 : float[4,64]
//	  ...
//	  return value=%7
//	}
//
// Long constants are abbreviated. The form is for reading; programs travel in the wire format.
func (p *Program) String() string { return p.text(false) }

// text writes the program; full spells out every constant element.
func (p *Program) text(full bool) string {
	var s strings.Builder
	fmt.Fprintf(&s, "program %s(", p.Name)
	for i, in := range p.Inputs {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "%%%d %s: %s", i, in.Name, in.Type)
	}
	s.WriteString(") {\n")
	for i := range p.Nodes {
		n := &p.Nodes[i]
		name := n.Op.String()
		if c := n.Attr.Call; c != nil {
			name = c.Name
		}
		fmt.Fprintf(&s, "  %%%d = %s", len(p.Inputs)+i, name)
		for _, a := range n.Args {
			fmt.Fprintf(&s, " %%%d", a)
		}
		n.Attr.write(&s, full)
		fmt.Fprintf(&s, " : %s\n", n.Type)
	}
	s.WriteString("  return")
	for _, o := range p.Outputs {
		fmt.Fprintf(&s, " %s=%%%d", o.Name, o.Value)
	}
	s.WriteString("\n}\n")
	return s.String()
}

func (a *Attr) write(s *strings.Builder, full bool) {
	for _, l := range a.lists() {
		if len(*l.axes) > 0 {
			name := strings.TrimSuffix(l.name, "_contract")
			fmt.Fprintf(s, " %s=%s", name, strings.ReplaceAll(fmt.Sprint(*l.axes), " ", ","))
		}
	}
	if a.Block != 0 {
		fmt.Fprintf(s, " block=%d", a.Block)
	}
	if c := a.Call; c != nil {
		if c.Setting != nil {
			fmt.Fprintf(s, " %+v", c.Setting)
		}
		if len(c.Meaning.Outputs) > 1 {
			s.WriteString(" output=" + c.Meaning.Outputs[a.Output].Name)
		}
		if full {
			s.WriteString(" " + c.Meaning.Hash())
		}
	}
	formatFloat := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	writeElements(s, a.Floats, full, formatFloat)
	writeElements(s, a.Ints, full, func(v int64) string { return strconv.FormatInt(v, 10) })
}

func writeElements[T any](s *strings.Builder, data []T, full bool, format func(T) string) {
	const most = 8
	switch len(data) {
	case 0:
		return
	case 1:
		s.WriteString(" " + format(data[0]))
		return
	}
	s.WriteString(" {")
	for i, v := range data {
		if i == most && !full {
			fmt.Fprintf(s, " … %d elements", len(data))
			break
		}
		if i > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(format(v))
	}
	s.WriteByte('}')
}
