// Package tools measures how long curlctl takes for its lists where there are
// many keys and many failures.
package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/keys"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/markdown"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// snippet is how much of a body a failure holds, in bytes.
const snippet = 1024

// failures are the part of the keys that failed for good: 20,000 of 50,000.
const failures = 0.4

// lists are the commands, each of which reads all that there is of its kind.
var lists = [][]string{
	{"status"}, {"wants"}, {"timers"}, {"failures"}, {"failures", "--limit=0"}, {"failing"},
}

// Options of a measurement.
type Options struct {
	// Bin is the folder with curlctl.
	Bin string
	// Keys that are wanted and wait for a refresh.
	Keys int
}

// Row is one command.
type Row struct {
	// Command is what was typed behind curlctl.
	Command string `json:"command"`
	// Took is the time from its start to its end, and CPU its part of it on a
	// processor, in seconds.
	Took float64 `json:"tookSeconds"`
	CPU  float64 `json:"cpuSeconds"`
	// Lines that it printed.
	Lines int `json:"lines"`
}

// Rows are the commands that were run.
type Rows []Row

// Run fills the streams of a NATS of its own, and lists them.
func Run(ctx context.Context, o Options, progress func(string, ...any)) (rows Rows, err error) {
	server, err := system.StartNATS(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop(ctx)) }()
	progress("publishing %d wants with their timers, and %d failures", o.Keys, int(failures*float64(o.Keys)))
	if err := fill(ctx, server.NATS(), o.Keys); err != nil {
		return nil, err
	}
	for _, command := range lists {
		row, err := list(ctx, o.Bin, server.NATS(), command)
		if err != nil {
			return rows, err
		}
		progress("curlctl %s: %.3f s", row.Command, row.Took)
		rows = append(rows, row)
	}
	return rows, nil
}

// fill publishes a want and a timer for each key, and the failure of some.
func fill(ctx context.Context, url string, count int) error {
	publisher, err := keys.NewPublisher(ctx, url)
	if err != nil {
		return err
	}
	defer publisher.Close()
	due := time.Now().Add(time.Hour)
	body := bytes.Repeat([]byte("x"), snippet)
	return keys.Each(ctx, count, func(ctx context.Context, n int) error {
		if err := publisher.Refreshed(ctx, n, due); err != nil || n >= int(failures*float64(count)) {
			return err
		}
		want := keys.Want(n, publisher.Epoch, "https://down.example.com/", time.Hour)
		return publisher.PublishDeadLetter(ctx, pipeline.KeyOf(want), &v1.DeadLetter{
			Want: want, Snippet: body, LastFailedAt: timestamppb.Now(),
			Failure: &v1.Failure{
				Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, Host: "down.example.com", Attempts: 6, FirstFailedAt: timestamppb.Now(),
			},
		}, fmt.Sprint("failure-", n))
	})
}

// list runs a command once. One that finds something wrong exits with 1, which is
// no error here: its sentence is about what.
func list(ctx context.Context, bin, url string, command []string) (row Row, err error) {
	row.Command = strings.Join(command, " ")
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "curlctl"), append(command, "--nats-url="+url)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	began := time.Now()
	err = cmd.Run()
	row.Took, row.Lines = time.Since(began).Seconds(), bytes.Count(out.Bytes(), []byte("\n"))
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1 || row.Lines == 0) {
		return row, fmt.Errorf("curlctl %s: %w: %s", row.Command, err, errOut.String())
	}
	row.CPU = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return row, nil
}

// WriteTable writes the rows as Markdown.
func (rows Rows) WriteTable(w io.Writer) error {
	t := markdown.New("`curlctl …`", "lines", "took", "CPU", "part on a processor")
	for _, r := range rows {
		t.Row("`"+r.Command+"`", "%d | %.2f s | %.2f s | %.2f", r.Lines, r.Took, r.CPU, r.CPU/r.Took)
	}
	return t.Write(w)
}
