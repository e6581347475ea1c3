package env

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// deadlineLead is how long before the deadline of the test binary the logs are printed.
const deadlineLead = 5 * time.Second

// Run runs the tests of a binary that starts programs, and returns the exit code; it is for TestMain. At the deadline of a binary
// (-timeout), Go prints goroutines and ends it: so shortly before, Run prints what the programs that still run have written last. With -v
// it also prints the CPU time of the programs that several tests share.
func Run(m *testing.M) int {
	if !flag.Parsed() {
		flag.Parse()
	}
	if limit := binaryTimeout(); limit > 0 {
		timer := time.AfterFunc(limit-min(deadlineLead, limit/10), func() { printAtDeadline(os.Stderr) })
		defer timer.Stop()
	}
	code := m.Run()
	if testing.Verbose() {
		printShared(os.Stdout)
	}
	return code
}

// binaryTimeout is the value of -timeout; 0 is no deadline.
func binaryTimeout() time.Duration {
	if timeout, isDuration := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration); isDuration {
		return timeout
	}
	return 0
}

// reports are what OnDeadline was given, in its order.
var reports struct {
	sync.Mutex
	next int
	of   map[int]func() string
}

// OnDeadline has Run print a report, of a program that runs, when the deadline of the test binary has nearly come and forget has not been
// called.
func OnDeadline(report func() string) (forget func()) {
	reports.Lock()
	defer reports.Unlock()
	if reports.of == nil {
		reports.of = map[int]func() string{}
	}
	key := reports.next
	reports.next++
	reports.of[key] = report
	return func() {
		reports.Lock()
		defer reports.Unlock()
		delete(reports.of, key)
	}
}

func printAtDeadline(w io.Writer) {
	reports.Lock()
	defer reports.Unlock()
	fmt.Fprintf(w, "The time of the test binary is nearly over (-timeout), and %d programs still run:\n", len(reports.of))
	for _, key := range slices.Sorted(maps.Keys(reports.of)) {
		fmt.Fprintf(w, "%s\n", reports.of[key]())
	}
}
