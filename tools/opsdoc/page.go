package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"text/template"

	"github.com/cage-qat/cage/sdk/program"
)

//go:embed ops.md.tmpl
var source string

// section describes a class of operations.
type section struct {
	class        program.Class
	Title, Intro string
}

// sections lists the classes in page order.
var sections = []section{
	{program.ClassSource, "Sources",
		"They take no tensor, except for the key of `random_bits`. The stated type of the node is the " +
			"type of the result."},
	{program.ClassUnary, "Elementwise, one operand",
		"The result has the shape of the operand, and its element type unless the meaning says " +
			"otherwise."},
	{program.ClassBinary, "Elementwise, two operands",
		"Both operands have one element type, which the result has too. Shapes follow the elementwise " +
			"rule."},
	{program.ClassCompare, "Comparisons", "Like the operations above, but the result is bool."},
	{program.ClassElementwise, "Clamp, selection and conversion",
		"Elementwise too. The bounds of `clamp` are scalars and the result has the type of its first " +
			"operand. For `convert` and `bitcast` the stated type names the wanted element type; the " +
			"shape is that of the operand."},
	{program.ClassShape, "Moving elements",
		"They compute nothing. For `reshape` and `broadcast` the stated type names the wanted shape; " +
			"the element type is that of the operand."},
	{program.ClassReduce, "Reductions",
		"Folded axes disappear from the shape; `reshape` brings them back with size 1 where an " +
			"elementwise operation follows."},
	{program.ClassLinear, "Linear maps", ""},
	{program.ClassGradient, "The reverse pass", ""},
	{program.ClassLinalg, "Factorizations",
		"Allowed only in refresh programs, which run every so many steps; a program of a quantizer or " +
			"of an optimizer's step that has one is refused."},
	{program.ClassTable, "Tables and order",
		"A table has n rows: numbers if it has one axis, runs of d numbers if it has two. For " +
			"`scatter_add` the stated type names the wanted shape."},
}

// page returns the whole document.
func page() ([]byte, error) {
	limits := program.Limits{}.WithDefaults()
	data := map[string]any{
		"Sections":  sections,
		"DTypes":    []program.DType{program.Float, program.Int, program.Uint, program.Bool},
		"MaxRank":   program.MaxRank,
		"MaxSize":   power(program.MaxSize),
		"MaxName":   program.MaxName,
		"Nodes":     limits.Nodes,
		"Total":     power(limits.Total),
		"Work":      power(limits.Work),
		"Constants": power(limits.Constants),
	}
	example, err := example()
	if err != nil {
		return nil, err
	}
	data["Example"] = example
	functions := template.FuncMap{"cell": cell, "upper": strings.ToUpper}
	t, err := template.New("ops.md").Funcs(functions).Parse(source)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Ops returns the operations of the class.
func (s section) Ops() []program.OpInfo {
	return slices.DeleteFunc(program.Ops(),
		func(info program.OpInfo) bool { return info.Class != s.class })
}

// cell escapes text for a Markdown table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}

var superscript = strings.NewReplacer("0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴", "5",
	"⁵", "6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹")

// power formats 2ⁿ and 2ⁿ−1 as powers, and other numbers as digits.
func power(n int64) string {
	exponent := func(n int64) string {
		return superscript.Replace(fmt.Sprint(bits.TrailingZeros64(uint64(n))))
	}
	switch {
	case bits.OnesCount64(uint64(n)) == 1:
		return "2" + exponent(n)
	case bits.OnesCount64(uint64(n+1)) == 1:
		return "2" + exponent(n+1) + "−1"
	}
	return fmt.Sprint(n)
}

// example returns the text of a program that fake-quantizes to 15 levels.
func example() (string, error) {
	b := program.NewBuilder("absmax/example")
	x := b.Input("x", program.FloatType(4, 64))
	scale := x.Abs().MaxRow().Scale(1. / 7)
	b.Output("value", x.Div(scale).Round().Mul(scale))
	b.Output("surrogate", x)
	p, err := b.Build()
	if err != nil {
		return "", err
	}
	return p.String(), nil
}
