"""Chooses between KVM and emulation, by trying.

Where this host is itself a virtual machine, /dev/kvm may exist and yet start no kernel, or only
after minutes. So a machine is booted once, with little patience, and the answer is kept.
"""
import os
import platform
import tempfile

import host
import machine

# With KVM a boot takes one or two seconds.
_PATIENCE_SECONDS = 20


def has_virtualization(cpuinfo):
    """Whether the processor has the extensions that KVM is made for."""
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
    return "vmx" in flags or "svm" in flags


def _boots(image):
    with tempfile.TemporaryDirectory(prefix="weft-lab-") as shared:
        options = machine.Options(image, shared, devices=["none"], accelerator="kvm")
        with machine.Machine(options) as candidate:
            try:
                candidate.wait_ready(_PATIENCE_SECONDS)
                return True
            except host.MachineFailed:
                return False


def choose(image, say):
    """"kvm" or "tcg". WEFT_LAB_ACCELERATOR overrides."""
    asked = os.environ.get("WEFT_LAB_ACCELERATOR")
    if asked:
        return asked
    with open("/proc/cpuinfo") as file:
        if not has_virtualization(file.read()) or not os.access("/dev/kvm", os.R_OK | os.W_OK):
            return "tcg"
    answer_file = host.lab_folder() / ("accelerator-%s-%s" % (platform.release(), image.name))
    try:
        return answer_file.read_text()
    except FileNotFoundError:
        say("trying whether KVM works here")
        answer = "kvm" if _boots(image) else "tcg"
        answer_file.write_text(answer)
        return answer
