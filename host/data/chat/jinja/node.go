package jinja

// expression is a part of a template that has a value.
type expression interface {
	eval(m *machine, s *scope) any
}

// statement is a part of a template that does something.
type statement interface {
	exec(m *machine, s *scope) flow
}

// Expressions. A line is where an error is reported.
type (
	constant struct{ value any }
	variable struct {
		name string
		line int
	}
	listOf struct {
		items []expression
		line  int
	}
	dictOf struct {
		keys, values []expression
		line         int
	}
	attribute struct {
		of   expression
		name string
		line int
	}
	subscript struct {
		of, key expression
		line    int
	}
	slice struct {
		of                expression
		start, stop, step expression // nil where left out
		line              int
	}
	call struct {
		function expression
		args     arguments
		line     int
	}
	filter struct {
		input expression // nil: the text of a block
		name  string
		args  arguments
		line  int
	}
	test struct {
		input expression
		name  string
		args  arguments
		line  int
	}
	// choice is "then if condition else otherwise"; without else it may be undefined.
	choice struct {
		then, condition, otherwise expression
		line                       int
	}
	not     struct{ of expression }
	logical struct {
		or          bool
		left, right expression
	}
	negative struct {
		of   expression
		line int
	}
	binary struct {
		operator    string
		left, right expression
		line        int
	}
	// comparison is a chain, as in a < b <= c.
	comparison struct {
		first     expression
		operators []string
		others    []expression
		line      int
	}
)

// arguments are those of a call, as they are written.
type arguments struct {
	positional []expression
	names      []string // of the named ones
	named      []expression
}

// Statements.
type (
	text struct {
		text string
		line int
	}
	output struct {
		of   expression
		line int
	}
	loop struct {
		targets         []string
		over, condition expression // condition may be nil
		body, otherwise []statement
		line            int
	}
	conditional struct {
		conditions []expression
		bodies     [][]statement // one more than conditions where there is an else
		line       int
	}
	assignment struct {
		targets []target
		value   expression
		line    int
	}
	// blockAssignment stores what a block prints.
	blockAssignment struct {
		target target
		filter expression // nil: none
		body   []statement
		line   int
	}
	macro struct {
		name     string
		params   []string
		defaults []expression // of the last params
		body     []statement
		line     int
	}
	generation struct {
		body []statement
		line int
	}
	leave struct{ how flow }
)

// target is what a value is assigned to: a name, or an attribute of a namespace.
type target struct{ name, attribute string }

// flow is how execution goes on after a statement.
type flow int

const (
	goOn flow = iota
	breakLoop
	continueLoop
)
