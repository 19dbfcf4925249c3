package harness

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// clockTick is the unit of the times in /proc/PID/stat: USER_HZ, which Linux fixes
// at 100 per second for everything user space can see (proc_pid_stat(5)).
const clockTick = 10 * time.Millisecond

// CPU is the processor time that the running process pid has used, in user and
// kernel mode, of all its threads (fields 14 and 15 of /proc/PID/stat).
func CPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading processor time: %w", err)
	}
	return parseStat(b)
}

func parseStat(b []byte) (time.Duration, error) {
	// Field 2 is the command in brackets and may hold spaces and brackets itself.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("reading processor time: /proc stat has %d fields after the command, not 13 or more", len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading processor time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// PeakRSS is the most resident memory that the running process pid ever had, in
// bytes (VmHWM of /proc/PID/status).
func PeakRSS(pid int) (int64, error) { return memory(pid, "VmHWM") }

// RSS is the resident memory that the running process pid has now, in bytes (VmRSS of
// /proc/PID/status).
func RSS(pid int) (int64, error) { return memory(pid, "VmRSS") }

func memory(pid int, field string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading memory: %w", err)
	}
	return parseMemory(b, field)
}

func parseMemory(b []byte, field string) (int64, error) {
	_, rest, ok := bytes.Cut(b, []byte("\n"+field+":"))
	if !ok {
		return 0, fmt.Errorf("reading memory: /proc status has no %s", field)
	}
	fields := bytes.Fields(rest)
	if len(fields) < 2 || string(fields[1]) != "kB" {
		return 0, fmt.Errorf("reading memory: %s is not in kB", field)
	}
	n, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading memory: %w", err)
	}
	return n << 10, nil
}

// Machine is the processor time of all cores since the machine started.
type Machine struct{ Busy, Total time.Duration }

// MachineCPU reads the processor time of the whole machine (the first line of
// /proc/stat; waiting for disks counts as idle).
func MachineCPU() (Machine, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Machine{}, fmt.Errorf("reading the machine's processor time: %w", err)
	}
	return parseMachine(b)
}

func parseMachine(b []byte) (Machine, error) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return Machine{}, fmt.Errorf("reading the machine's processor time: the first line of /proc/stat is not one of 8 times")
	}
	var m Machine
	// user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user already.
	for i, f := range fields[1:9] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return Machine{}, fmt.Errorf("reading the machine's processor time: %w", err)
		}
		d := time.Duration(n) * clockTick
		m.Total += d
		if i != 3 && i != 4 {
			m.Busy += d
		}
	}
	return m, nil
}
