package jinja

import (
	"strings"
	"time"
)

// Prefix asks for the text of the first elements of a list.
type Prefix struct {
	Elements int
	// Flag is the value of the variable that differs between renderings.
	Flag bool
}

// Ending is how the text of a prefix ends: behind the first bytes of the text that all prefixes have in common.
type Ending struct {
	Common int
	Rest   string
	// Last is the part of Rest that a loop printed for the last element, if [Rendering.Printed] has
	// one.
	Last    Span
	HasLast bool
}

// Len is the length of the text.
func (e Ending) Len() int { return e.Common + len(e.Rest) }

// Prefixes are the texts of several prefixes of a list.
type Prefixes struct {
	Common  string
	Endings []Ending
}

// ending is a panic that ends a rendering of prefixes.
type ending string

func (e ending) Error() string { return string(e) }

// ErrDepends says that a template's text of the first elements depends on how many there are, in a way that
// [Template.RenderPrefixes] does not follow.
var ErrDepends error = errDepends

// ErrWork says that the prefixes take more steps than [Limits.Work].
var ErrWork error = errWork

const (
	errWork        ending = "the prefixes take too many steps"
	errDepends     ending = "the text of the first elements depends on those that follow"
	errAllRendered ending = "all prefixes are rendered"
)

// maxKept bounds the bytes of the endings of [Template.RenderPrefixes]: if each is a whole text,
// they are better rendered one after the other.
const maxKept = 1 << 26

// RenderPrefixes renders the template once for each prefix of the list that variables have under a name, and gives the
// texts that as many calls of [Template.Render] would give. Prefixes have at least one element and are in the order of
// their lengths. The variable flag is set as each prefix says.
//
// It goes through the list once, in time that is linear in the length of the list, if the template does as most do: it has
// one loop over the list, whose body looks no further than one element ahead. While it runs, the end of the list is not
// known. Where a prefix ends, the template goes on to its own end as if the list ended there, and is then taken back to
// that place. What cannot be computed without knowing the end gives [ErrDepends], and so do texts
// that share too little to be kept. With an error come the texts of the prefixes before it.
func (t *Template) RenderPrefixes(variables map[string]any, list, flag string, prefixes []Prefix, now time.Time, limits Limits) (p Prefixes, err error) {
	var out strings.Builder
	all, _ := variables[list].(List)
	f := &prefixRun{all: all, pending: prefixes, limits: limits.orDefault(), open: true, known: 1}
	defer func() {
		p = Prefixes{out.String(), f.endings}
		if err == errAllRendered {
			err = nil
		}
	}()
	defer recoverError(t.name, &err)
	if t.generation || len(prefixes) == 0 || prefixes[0].Elements < 1 || prefixes[len(prefixes)-1].Elements > len(all) {
		return p, errDepends
	}
	m := newMachine(f.limits, now, &out)
	m.follow = f
	top := topScope(variables)
	top.vars[list], top.vars[flag] = &openList{f, 0}, &openFlag{f}
	m.run(t.body, top)
	return p, errDepends // there is no loop over the list
}

// isOpen tells whether an expression is a variable whose value differs between prefixes, where none is rendered.
func (m *machine) isOpen(e expression, s *scope) bool {
	if v, ok := e.(*variable); ok && m.follow != nil && m.follow.open {
		switch s.get(v.name).(type) {
		case *openList, *openFlag:
			return true
		}
	}
	return false
}

// prefixRun is the state of a rendering of prefixes.
type prefixRun struct {
	all     List
	pending []Prefix // that are still to be rendered
	endings []Ending
	limits  Limits

	open   bool // the end of the list is not known; otherwise the list is that of the prefix pending[0]
	known  int  // number of elements that all pending prefixes have
	nested int  // loops around the place
	kept   int  // bytes of endings
	frames []frame
	undo   []func() // what takes back the assignments of a prefix
}

// frame is what is left to run of a block.
type frame struct {
	rest []statement
	s    *scope
}

// The values of the variables whose values differ between prefixes.
type (
	openList struct {
		of   *prefixRun
		from int // the first element
	}
	openFlag struct{ of *prefixRun }
)

// currentValue is the value of a variable in the prefix that is rendered. Where none is, a value that differs between prefixes
// cannot be used.
func currentValue(value any) any {
	switch v := value.(type) {
	case *openList:
		if v.of.open {
			panic(errDepends)
		}
		end := v.of.pending[0].Elements
		return v.of.all[min(v.from, end):end]
	case *openFlag:
		if v.of.open {
			panic(errDepends)
		}
		return v.of.pending[0].Flag
	}
	return value
}

// openList is the list that an expression stands for, if it is the one whose end is not known, or its end from some element on.
func (m *machine) openList(e expression, s *scope) *openList {
	if m.follow == nil || !m.follow.open {
		return nil
	}
	switch e := e.(type) {
	case *variable:
		list, _ := s.get(e.name).(*openList)
		return list
	case *slice:
		of := m.openList(e.of, s)
		if of == nil || e.start == nil || e.stop != nil || e.step != nil {
			return nil
		}
		m.step(e.line)
		if from, ok := e.start.eval(m, s).(int64); ok && from >= 0 && from <= int64(len(of.of.all)) {
			return &openList{of.of, of.from + int(from)}
		}
	}
	return nil
}

// element is an element that all prefixes have.
func (l *openList) element(key any) any {
	i, ok := key.(int64)
	if !ok || i < 0 || i >= int64(l.of.known-l.from) {
		panic(errDepends)
	}
	return l.of.all[l.from+int(i)]
}

// runs executes a block, and remembers what is left of it.
func (f *prefixRun) runs(m *machine, body []statement, s *scope) flow {
	at := len(f.frames)
	for i, one := range body {
		f.frames = append(f.frames[:at], frame{body[i+1:], s})
		if how := one.exec(m, s); how != goOn {
			return how
		}
	}
	f.frames = f.frames[:at]
	return goOn
}

// loop is the loop over the list.
func (f *prefixRun) loop(m *machine, l *loop, s *scope, from int) flow {
	if l.condition != nil || f.nested > 0 || m.captures > 0 {
		panic(errDepends)
	}
	frames := f.frames
	for f.next(from) {
		f.prefix(m, frames, func() { l.exec(m, s) })
	}
	for at := from; ; at++ {
		for f.next(at + 1) {
			f.prefix(m, frames, func() { l.iteration(m, s, &position{list: f.all[from : at+1], at: at - from}) })
		}
		f.known = at + 2
		if l.iteration(m, s, &position{list: f.all[from:], at: at - from, open: true}) == breakLoop {
			panic(errDepends)
		}
	}
}

// next tells whether a prefix of at most so many elements is to be rendered. If there are none at all, it ends the rendering.
func (f *prefixRun) next(elements int) bool {
	if len(f.pending) == 0 {
		panic(errAllRendered)
	}
	return f.pending[0].Elements <= elements
}

// prefix renders to the end of the template as if the list ended here: first what rest does, then the frames.
func (f *prefixRun) prefix(m *machine, frames []frame, rest func()) {
	before := *m
	var out strings.Builder
	m.out, m.steps, m.bytes = &out, f.limits.Steps, f.limits.Bytes
	m.printed = map[*Dict]Span{}
	f.open, f.undo = false, nil
	rest()
	for i := len(frames) - 1; i >= 0; i-- {
		m.run(frames[i].rest, frames[i].s)
	}
	for i := len(f.undo) - 1; i >= 0; i-- {
		f.undo[i]()
	}
	f.limits.Work -= f.limits.Steps - m.steps
	if f.limits.Work < 0 {
		panic(errWork)
	}
	if f.kept += out.Len(); f.kept > maxKept {
		panic(errDepends)
	}
	end := Ending{Common: before.out.Len(), Rest: out.String()}
	if element, ok := f.all[f.pending[0].Elements-1].(*Dict); ok {
		end.Last, end.HasLast = m.printed[element]
	}
	*m = before
	f.open, f.frames = true, frames
	f.endings = append(f.endings, end)
	f.pending = f.pending[1:]
}

// set assigns a variable.
func (m *machine) set(s *scope, name string, value any) {
	if f := m.follow; f != nil && !f.open {
		old, had := s.vars[name]
		f.undo = append(f.undo, func() {
			if s.vars[name] = old; !had {
				delete(s.vars, name)
			}
		})
	}
	s.vars[name] = value
}
