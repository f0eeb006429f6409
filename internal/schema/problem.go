package schema

// Problem describes a key whose value does not fit those of other keys.
type Problem struct {
	Key   string   // full and dotted
	With  []string // the other keys; if one of them is invalid itself, the problem is not reported
	Found string
	Hint  string // what would be right
}

// Problems collects problems.
type Problems []Problem

// Unless adds a problem if ok is false.
func (p *Problems) Unless(ok bool, problem Problem) {
	if !ok {
		*p = append(*p, problem)
	}
}
