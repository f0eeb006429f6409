package schema

// Problem is a key whose value does not go with those of other keys.
type Problem struct {
	Key   string   // full and dotted
	With  []string // the other keys; while one of them is wrong for itself, there is no telling
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
