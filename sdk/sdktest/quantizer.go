package sdktest

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk"
)

// checks are all checks of quantizers, in the order of the report.
func (q *quantizerRun) checks() []step {
	return []step{
		{"parameters", "each value in a declared range, alone and with others, gives a valid " +
			"program or an error that says what to do", q.checkParameters, ""},
		{"shapes", "valid programs for weights and activations of every shape, and for " +
			"gradients or a refusal; rows of a length that 32 divides cannot be refused",
			q.checkShapes, ""},
		{"layers", "valid programs for every block of a model, however many there are, and for " +
			"what is in none", q.checkLayers, ""},
		{"deterministic", "the same request gives the same programs, and the same program the " +
			"same bits", q.checkDeterministic, ""},
		{"zeros", "zeros stay zeros, with codes 0 (or one code, where that is claimed) and mask " +
			"1; or a level near zero where zero is none", q.everywhere(q.checkZeros), ""},
		{"constant and tiny rows", "rows of equal, and of subnormal, numbers give finite values",
			q.everywhere(q.checkConstants), ""},
		{"largest numbers", "rows of the largest binary32 numbers do no harm to others",
			q.everywhere(q.checkLargest), ""},
		{"non-finite", "NaN and ±Inf make exactly what shares their scale NaN, with codes 0, " +
			"mask 0 and a finite gradient", q.everywhere(q.checkNonFinite), ""},
		{"rows", "a row has the same result alone and in a matrix, unless one scale is for the " +
			"whole tensor", q.onOracle(q.checkRows), ""},
		{"scale scope", "a scale is shared by what is claimed: if nothing is, by a row or a " +
			"part of it, or by a whole weight", q.checkScope, "no scale that depends on the data"},
		{"nearest", "where the levels can be seen from outside, each value goes to the nearest, " +
			"and they reach as far as their scale says",
			q.onOracle(q.checkNearest), "the levels of an entry cannot be seen from outside"},
		{"error", "the error is that of a quantizer: no row much worse than others, no bias, no " +
			"shrinking", q.checkError, ""},
		{"noise", "where a program takes noise, another key gives another result; the mean over " +
			"the noise is x, where that is claimed", q.checkNoise, "no program takes noise"},
		{"fixed points", "what is on the grid stays there, where that is claimed",
			q.checkFixed, ""},
		{"homogeneous", "Q(c·x) = c·Q(x) where it is promised",
			q.onOracle(q.checkHomogeneous), "no program says that it is homogeneous"},
		{"gradient", "the gradient by x and by trained parameters is that of the surrogate, by " +
			"central differences",
			q.onOracle(q.checkGradient), "the quantizer has a backward pass of its own"},
		{"own backward pass", "where the quantizer has one, it is finite, also for dy of zeros, " +
			"zero where dy is zero, and in each row that of the row",
			q.everywhere(q.checkOwnBackward), "the gradients are those of a surrogate"},
		{"gradient size", "the gradient passes where the mask says so, with factor 1",
			q.checkGradientSize, "any_gradient is claimed"},
		{"mask", "where a mask stops something, what it passes is not clipped",
			q.checkMask, "no mask that stops anything, with the defaults"},
		{"forward split", "the forward pass of training gives the bits of the value",
			q.everywhere(q.checkSplit), ""},
		{"unpack", "codes and scale unpack to the value, bit for bit",
			q.checkUnpack, "not a packer"},
		{"whole codes", "codes are whole numbers, of any type; with a grid, they are codes of " +
			"it, and values their numbers times the scales",
			q.everywhere(q.checkWhole), "no codes"},
		{"count of codes", "a quantizer with a parameter bits has at most 2^bits codes",
			q.checkCount, "no codes"},
		{"trained parameters", "they start finite from any finite tensor, and do not depend on " +
			"the number of rows of an activation", q.checkTrained, "none"},
		{"constraints", "they hold for initial values, and what is in the set already stays as " +
			"it is", q.everywhere(q.checkConstraints), "none"},
		{"kept state", "it starts finite and stays so, steps change it, something depends on " +
			"it, evaluation too, and it stays good for a tensor that repeats",
			q.checkKept, "none"},
		{"search", "a search goes by its inputs alone, changes nothing that it reads, and " +
			"writes all of the state, the same when it is asked again or beside others",
			q.onOracle(q.checkSearch), "the quantizer does not search"},
		{"statistics of columns", "initial values that follow from them are finite, depend on " +
			"them, and do not make the product of an activation with outliers worse",
			q.checkColumns, "no statistics are taken"},
		{"learning", "away from their start, the gradient leads trained parameters to a smaller " +
			"error, and not to a larger one", q.onOracle(q.checkLearning), "none"},
		{"devices", "compiled programs agree with the oracle: outputs, gradients, initial " +
			"values, next states", q.checkDevices, ""},
	}
}

func newQuantizerRun(subject QuantizerSubject, list []Option) *session {
	s, ok := newSession(sdk.KindQuantizer, subject.Describe, list)
	if ok {
		q := &quantizerRun{session: s, subject: subject, asked: map[string]*siteAnswer{}}
		s.addSteps(q.checks(), q.goldenCase)
	}
	return s
}

// checkParameters builds every variant for every role, and runs it once. The
// defaults must be accepted for at least one role.
func (q *quantizerRun) checkParameters(t *trial) {
	var refused refusals
	variants := slices.Concat(q.space.singles, q.space.mixed)
	for i, v := range variants {
		t.announce()
		var errs []error
		for _, role := range q.roles() {
			s, err := q.ask(v, role, 4, 128)
			switch {
			case err == nil:
				s.runOnce(t)
			case isRefusal(err):
				errs = append(errs, err)
			default:
				t.ok(s.example, err)
			}
		}
		if len(errs) < len(q.roles()) {
			continue
		}
		refused.add(errs[0])
		if i == 0 {
			t.ok(example{settings: v.changed}, errs[0])
		}
	}
	refused.note(t, len(variants), "settings")
}

func (s *siteAnswer) runOnce(t *trial) {
	t.run(func() {
		x := normal(1, s.shape...)
		in := s.instance(t, Oracle{}, x)
		in.finite(x, "value", in.quantize(x).value)
	})
}

// rowLengths are those of the shapes check, from the smallest to that of a model;
// odd ones, and those around a block of 32.
var rowLengths = []int{1, 3, 31, 32, 33, 128, 640, 1024}

func (q *quantizerRun) checkShapes(t *trial) {
	var refused refusals
	for _, role := range q.roles() {
		if _, err := q.ask(q.space.singles[0], role, 4, 128); isRefusal(err) {
			t.notef("not for sites of the role %s", role)
			continue
		}
		for _, d := range rowLengths {
			for _, rows := range []int{1, 7} {
				s, err := q.ask(q.space.singles[0], role, rows, d)
				if err == nil {
					s.runOnce(t)
					continue
				}
				t.announce()
				alone := ofAttention(role) && rows == 1 // groups of tokens need several
				if !isRefusal(err) || d%32 == 0 && len(s.settings) == 0 && !alone {
					t.ok(s.example, err)
				}
				refused.add(err)
			}
		}
	}
	refused.note(t, t.check.Tried, "shapes")
	q.checkOperands(t)
}

// operands are those of the products of the backward pass.
var operands = []sdk.Site{
	{Role: sdk.RoleGradient, Product: sdk.ProductInputGradient},
	{Role: sdk.RoleWeight, Product: sdk.ProductInputGradient},
	{Role: sdk.RoleGradient, Product: sdk.ProductWeightGradient},
	{Role: sdk.RoleActivation, Product: sdk.ProductWeightGradient},
}

// checkOperands asks for the operands of the products of the backward pass. A quantizer may refuse
// any of them.
func (q *quantizerRun) checkOperands(t *trial) {
	for _, site := range operands {
		v, shape := q.space.singles[0], []int{7, 128}
		on := example{role: fmt.Sprintf("%s in the product %s", site.Role, site.Product), shape: shape, settings: v.changed}
		site.Name, site.Layers, site.Shape, site.Values = "layers.0.wq", 1, shape, v.values
		t.announce()
		s := &siteAnswer{variant: v, asked: site.Role, example: on}
		if s.Quantizer, s.err = q.answer(site); s.err == nil {
			s.runOnce(t)
		} else if !isRefusal(s.err) {
			t.ok(on, s.err)
		}
	}
}

// checkLayers asks for programs at several depths, for the roles that the default settings have.
func (q *quantizerRun) checkLayers(t *trial) {
	for _, role := range q.roles() {
		if _, err := q.ask(q.space.singles[0], role, 4, 128); err != nil {
			continue // the shapes check reports it
		}
		for _, at := range []depth{{0, 1}, {0, 2}, {1, 2}, {47, 48}, {-1, 2}, {-1, 0}} {
			t.announce()
			s := &siteAnswer{variant: q.space.singles[0], asked: role, example: example{role: fmt.Sprintf("%s of block %d of %d", role, at.layer, at.layers), shape: []int{4, 128}}}
			s.Quantizer, s.err = q.programs(s.variant, role, s.shape, at)
			s.search = q.search(s.variant, role, s.shape, at)
			if t.ok(s.example, s.err) {
				s.runOnce(t)
			}
		}
	}
}

func (q *quantizerRun) checkDeterministic(t *trial) {
	for _, v := range q.space.singles {
		for _, s := range q.sites(v, matrixShapes[0]...) {
			t.announce()
			again, err := q.programs(v, s.asked, matrixShapes[0], usual)
			if t.ok(s.example, err) {
				if s.evaluates {
					again = again.ForEvaluation()
				}
				samePrograms(t, s.example, s.Programs(), again.Programs())
			}
		}
	}
	q.everywhere(func(_ *trial, in *instance, x []float64) {
		first, second := in.quantize(x), in.quantize(x)
		in.equal(x, "value of a second run", second.value, first.value)
	})(t)
}
