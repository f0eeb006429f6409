package step_test

import (
	"encoding/json"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestMachineCode checks that scripts/machinecode.py counts the instructions on the longest path of
// a warp, and each loop as often as it runs. The listings have the form of NVIDIA's disassembler
// for an H200, shortened.
func TestMachineCode(t *testing.T) {
	testlevel.Long(t, "a process of Python for each listing")
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	for _, tt := range []struct {
		name, listing string
		tiles         string // how often loops over tiles run
		instructions  float64
		loops         []any
	}{
		{"straight on, to a trap that nobody reaches", `
			S2R R0, SR_CTAID.X
		@P0 EXIT
			STG.E desc[UR4][R2.64], R0
			EXIT
		.L_x_0:
			BRA ` + "`(.L_x_0)" + `
			NOP`, "[]", 4, []any{}},
		{"a counter from 0 to 0x400 in steps of 0x80", `
			HFMA2.MMA R54, -RZ, RZ, 0, 0
		.L_x_0:
			IADD3 R54, P1, R54, 0x80, RZ
			ISETP.NE.U32.AND P0, PT, R54, 0x400, PT
			FADD R1, R1, R2
		@P0 BRA ` + "`(.L_x_0)" + `
			EXIT`, "[]", 2 + 8*4, []any{8.0}},
		{"a uniform counter that is compared before it grows, with an end that floats write", `
			HFMA2.MMA R3, -RZ, RZ, 0, 5.9604644775390625e-08
			UMOV UR4, 0x1
		.L_x_0:
			UISETP.GE.AND UP0, UPT, UR4, 0xa, UPT
			UIADD3 UR4, UR4, 0x3, URZ
			PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0
		@!P0 BRA ` + "`(.L_x_0)" + `
			EXIT`, "[]", 3 + 4*4, []any{4.0}},
		{"a flag that the first round clears", `
			UPLOP3.LUT UP0, UPT, UPT, UPT, UPT, 0x80, 0x0
		.L_x_0:
			PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0
			UPLOP3.LUT UP0, UPT, UPT, UPT, UPT, 0x40, 0x0
		@P0 BRA ` + "`(.L_x_0)" + `
			EXIT`, "[]", 2 + 2*3, []any{2.0}},
		{"a loop from an instance's number, which the kernel's text knows", `
			S2R R5, SR_CTAID.X
		.L_x_0:
			IADD3 R5, R5, 0x210, RZ
			ISETP.GE.AND P0, PT, R5, 0x1000, PT
		@!P0 BRA ` + "`(.L_x_0)" + `
			EXIT`, "[8]", 2 + 8*3, []any{8.0}},
		{"the same where the text does not know it", `
			S2R R5, SR_CTAID.X
		.L_x_0:
			IADD3 R5, R5, 0x210, RZ
			ISETP.GE.AND P0, PT, R5, 0x1000, PT
		@!P0 BRA ` + "`(.L_x_0)" + `
			EXIT`, "[]", 2 + 3, []any{nil}},
		{"the longer of two ways, a subroutine left out", `
			BSSY.RECONVERGENT B0, ` + "`(.L_x_1)" + `
		@!P3 BRA ` + "`(.L_x_0)" + `
			MOV R0, R2
			CALL.REL.NOINC ` + "`($slow)" + `
			BRA ` + "`(.L_x_2)" + `
		.L_x_0:
			FMUL R1, R1, R2
			FMUL R1, R1, R3
			FMUL R1, R1, R4
			FMUL R1, R1, R5
		.L_x_2:
			BSYNC.RECONVERGENT B0
		.L_x_1:
			FADD R7, R7, R1
			EXIT
		$slow:
			FMUL R9, R9, R9
			RET.REL.NODEC R8 ` + "`(kernel)", "[]", 9, []any{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var text strings.Builder
			for line := range strings.Lines(tt.listing) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasSuffix(line, ":") {
					line = "\t/*0000*/ " + line + " ;"
				}
				text.WriteString(line + "\n")
			}
			c := exec.Command(python, "-c", "import json, sys, machinecode as "+
				"m\nprint(json.dumps(m.count(m.parse(sys.stdin.read()), "+tt.tiles+")))")
			c.Dir, c.Stdin = "../../../scripts", strings.NewReader(text.String())
			out, err := c.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var got, want any = nil, []any{tt.instructions, tt.loops}
			if err := json.Unmarshal(out, &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("instructions and loops %v, want %v: %v\n%s", got, want, err, out)
			}
		})
	}
}
