package serve_test

import (
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/cage-qat/cage/host/study/serve"
)

// The table shows the runs below a directory. Requests must use a name of this machine.
func Example() {
	dir, err := os.MkdirTemp("", "runs")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	run := filepath.Join(dir, "demo")
	if err := os.MkdirAll(run, 0o755); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(run, "run.toml"), []byte("[train]\nsteps = 10\n"),
		0o644); err != nil {
		log.Fatal(err)
	}
	pages := serve.New("", dir).Handler()
	for _, host := range []string{"localhost:7170", "elsewhere.example"} {
		answer, request := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		request.Host = host
		pages.ServeHTTP(answer, request)
		fmt.Println(answer.Code, strings.Contains(answer.Body.String(), "demo"))
	}
	// Output:
	// 200 true
	// 403 false
}
