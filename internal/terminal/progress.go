package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Progress shows a person what is being waited for. On a terminal the last line shows it with the time elapsed; elsewhere
// what has happened, and what is reported, is written, a line each. It may be used from several goroutines.
type Progress struct {
	w       io.Writer
	colours Colours
	clock   clock.WithTicker
	start   time.Time
	live    bool

	mu      sync.Mutex
	waiting []wait
	frame   int
	stop    chan struct{}
	stopped sync.WaitGroup
}

// wait is one thing that is being waited for.
type wait struct {
	subject string
	what    func() string
}

var frames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

const (
	frameInterval = 100 * time.Millisecond
	fallbackWidth = 80
	clearLine     = "\r\x1b[K"
)

// NewProgress starts to count the time. Close must be called before anything else is written to the terminal.
func NewProgress(w io.Writer, clk clock.WithTicker) *Progress {
	return newProgress(w, clk, Is(w) && os.Getenv("TERM") != "dumb")
}

func newProgress(w io.Writer, clk clock.WithTicker, live bool) *Progress {
	p := &Progress{w: w, colours: ColoursOf(w), clock: clk, start: clk.Now(), live: live, stop: make(chan struct{})}
	if live {
		ticker := clk.NewTicker(frameInterval)
		p.stopped.Go(func() { p.animate(ticker) })
	}
	return p
}

func (p *Progress) animate(ticker clock.Ticker) {
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C():
			p.mu.Lock()
			p.frame++
			p.draw()
			p.mu.Unlock()
		}
	}
}

// Wait sets what the subject is being waited for. It replaces what was set for the same subject before; an empty what
// takes the subject off the line.
func (p *Progress) Wait(subject, what string) {
	if what == "" {
		p.set(subject, nil)
		return
	}
	p.set(subject, func() string { return what })
}

// Report is Wait for what is worth a line where there is no terminal, such as why it takes long.
func (p *Progress) Report(subject, what string) {
	p.Wait(subject, what)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.live && what != "" {
		p.write("·", Dim, subject, what)
	}
}

// Follow is Wait for what changes all the time: what is asked, from any goroutine, whenever the line is drawn. It must not call p.
func (p *Progress) Follow(subject string, what func() string) { p.set(subject, what) }

func (p *Progress) set(subject string, what func() string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(subject)
	if what != nil {
		p.waiting = append(p.waiting, wait{subject: subject, what: what})
	}
	p.draw()
}

// Done writes a line that stays: what has happened to the subject, and when. What it was waited for is forgotten.
func (p *Progress) Done(subject, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(subject)
	p.write("✓", Green, subject, what)
}

// write writes a line that stays above the last one.
func (p *Progress) write(mark, colour, subject, what string) {
	elapsed := p.clock.Since(p.start).Round(frameInterval)
	took := p.colours.Paint(Dim, fmt.Sprintf("(%s)", elapsed))
	line := fmt.Sprintf("%s %s: %s %s", p.colours.Paint(colour, mark), subject, text.Lines(what), took)
	if p.live {
		line = clearLine + line
	}
	fmt.Fprintln(p.w, line)
	p.draw()
}

// Warn writes a line that stays: what blocks the subject, and since when. It is still waited for.
func (p *Progress) Warn(subject, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write("!", Red, subject, what)
}

// Close takes the line off the terminal. Calling it again does nothing.
func (p *Progress) Close() {
	p.mu.Lock()
	if !p.live {
		p.mu.Unlock()
		return
	}
	p.live = false
	close(p.stop)
	fmt.Fprint(p.w, clearLine)
	p.mu.Unlock()
	p.stopped.Wait()
}

func (p *Progress) forget(subject string) {
	for i := range p.waiting {
		if p.waiting[i].subject == subject {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			return
		}
	}
}

// draw writes the last line: never longer than the terminal, or it could not be taken away again.
func (p *Progress) draw() {
	if !p.live {
		return
	}
	if len(p.waiting) == 0 {
		fmt.Fprint(p.w, clearLine)
		return
	}
	parts := make([]string, len(p.waiting))
	for i, w := range p.waiting {
		parts[i] = w.subject + ": " + text.OneLine(w.what())
	}
	line := []rune(fmt.Sprintf("%s %.1fs  %s", frames[p.frame%len(frames)], p.clock.Since(p.start).Seconds(), strings.Join(parts, " · ")))
	if width := p.width(); len(line) >= width {
		line = append(line[:width-2], '…')
	}
	fmt.Fprint(p.w, clearLine+string(line))
}

func (p *Progress) width() int {
	if file, ok := p.w.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 2 {
			return width
		}
	}
	return fallbackWidth
}
