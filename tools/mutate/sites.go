package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
)

// A mutant is a change of one place of a file.
type mutant struct {
	file       string
	line, at   int    // from 1; at is the byte in the line
	start, end int    // of the text that is replaced, in bytes
	with       string // what stands there instead
	old        string // for the table
}

func (m mutant) place() string { return fmt.Sprintf("%s:%d:%d", m.file, m.line, m.at) }

func (m mutant) pkg() string { return "./" + filepath.ToSlash(filepath.Dir(m.file)) }

// apply returns the text of the file with the change.
func (m mutant) apply(text []byte) []byte {
	return append(append(append([]byte{}, text[:m.start]...), m.with...), text[m.end:]...)
}

// operators are what a binary operator becomes: the boundary of a comparison moves, and
// the others turn into their opposite.
var operators = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR, token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.LAND: token.LOR, token.LOR: token.LAND,
}

// finder collects the mutants of a file.
type finder struct {
	files *token.FileSet
	name  string
	text  []byte
	found []mutant
}

// mutantsOf lists the mutants of a file, in order.
func mutantsOf(name string) ([]mutant, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f := &finder{files: token.NewFileSet(), name: name, text: text}
	tree, err := parser.ParseFile(f.files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(tree) {
		return nil, err
	}
	ast.Inspect(tree, f.node)
	return f.found, nil
}

func (f *finder) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec, *ast.ArrayType: // whose literals are no numbers to compute with
		return false
	case *ast.BinaryExpr:
		if to, ok := operators[n.Op]; ok {
			f.add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to.String())
		}
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.ForStmt:
		f.negate(n.Cond)
	case *ast.BasicLit:
		if number, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			f.replace(n, strconv.FormatInt(number+1, 10))
			f.replace(n, "("+strconv.FormatInt(number-1, 10)+")")
		}
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.ReturnStmt:
		f.result(n)
	}
	return true
}

func (f *finder) negate(condition ast.Expr) {
	if condition != nil {
		f.replace(condition, "!("+f.source(condition)+")")
	}
}

// statements leaves out one that is a call, an assignment or a jump.
func (f *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				f.replace(s, "")
			}
		case *ast.BranchStmt:
			if s.Tok != token.FALLTHROUGH {
				f.replace(s, "")
			}
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt:
			f.replace(s, "")
		case *ast.ReturnStmt:
			if s.Results == nil {
				f.replace(s, "")
			}
		}
	}
}

// result returns no error in the place of one.
func (f *finder) result(s *ast.ReturnStmt) {
	if len(s.Results) == 0 {
		return
	}
	switch last := s.Results[len(s.Results)-1].(type) {
	case *ast.Ident:
		if last.Name == "err" {
			f.replace(last, "nil")
		}
	case *ast.CallExpr:
		if name := f.source(last.Fun); name == "fmt.Errorf" || name == "errors.New" {
			f.replace(last, "nil")
		}
	}
}

func (f *finder) replace(n ast.Node, with string) { f.add(n.Pos(), n.End(), with) }

func (f *finder) add(from, to token.Pos, with string) {
	place, end := f.files.Position(from), f.files.Position(to).Offset
	start := place.Offset
	f.found = append(f.found, mutant{file: f.name, line: place.Line, at: place.Column, start: start, end: end, with: with, old: string(f.text[start:end])})
}

func (f *finder) source(n ast.Node) string {
	return string(f.text[f.files.Position(n.Pos()).Offset:f.files.Position(n.End()).Offset])
}
