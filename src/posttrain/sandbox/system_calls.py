"""The system calls that the filter knows by name, in four groups, and their numbers on the machines that we know.

What is in no group does not exist for a program (ENOSYS), as on an older kernel. Left out for a reason are clone3,
whose flags lie behind a pointer, so that the C library falls back to clone; sync and syncfs, which flush the host's
disks; io_setup and its kin, whose contexts are counted for the whole host; and cachestat, which tells what the host
has read. The numbers are those of the kernel's tables: syscall_64.tbl of x86, and the generic one, which aarch64 has.
"""

from __future__ import annotations

from collections.abc import Mapping

_MACHINES = ("x86_64", "aarch64")

Table = Mapping[str, Mapping[str, int]]
"""By name and then by machine; a machine that lacks a call is missing."""


def numbers(table: Table, machine: str) -> dict[str, int]:
    """The calls of `table` that `machine` has."""
    return {name: by_machine[machine] for name, by_machine in table.items() if machine in by_machine}


def _table(text: str) -> Table:
    """From words `name x86_64/aarch64`, with `-` for a machine that lacks the call."""
    words = text.split()
    return {name: _by_machine(pair) for name, pair in zip(words[::2], words[1::2], strict=True)}


def _by_machine(pair: str) -> dict[str, int]:
    return {machine: int(number) for machine, number in zip(_MACHINES, pair.split("/"), strict=True) if number != "-"}


_FILES = _table("""
    read 0/63  write 1/64  readv 19/65  writev 20/66  pread64 17/67  pwrite64 18/68  preadv 295/69
    pwritev 296/70  preadv2 327/286  pwritev2 328/287  open 2/-  openat 257/56  openat2 437/437  creat 85/-
    close 3/57  close_range 436/436  lseek 8/62  dup 32/23  dup2 33/-  dup3 292/24  fcntl 72/25  flock 73/32
    pipe 22/-  pipe2 293/59  sendfile 40/71  splice 275/76  tee 276/77  vmsplice 278/75  copy_file_range 326/285
    readahead 187/213  fadvise64 221/223  fallocate 285/47  truncate 76/45  ftruncate 77/46  fsync 74/82
    fdatasync 75/83  sync_file_range 277/84
""")
_PATHS = _table("""
    stat 4/-  fstat 5/80  lstat 6/-  newfstatat 262/79  statx 332/291  statfs 137/43  fstatfs 138/44
    access 21/-  faccessat 269/48  faccessat2 439/439  getcwd 79/17  chdir 80/49  fchdir 81/50  getdents 78/-
    getdents64 217/61  mkdir 83/-  mkdirat 258/34  rmdir 84/-  unlink 87/-  unlinkat 263/35  rename 82/-
    renameat 264/38  renameat2 316/276  link 86/-  linkat 265/37  symlink 88/-  symlinkat 266/36  readlink 89/-
    readlinkat 267/78  mknod 133/-  mknodat 259/33  chmod 90/-  fchmod 91/52  fchmodat 268/53  fchmodat2 452/452
    chown 92/-  fchown 93/55  lchown 94/-  fchownat 260/54  umask 95/166  utime 132/-  utimes 235/-
    futimesat 261/-  utimensat 280/88  setxattr 188/5  lsetxattr 189/6  fsetxattr 190/7  getxattr 191/8
    lgetxattr 192/9  fgetxattr 193/10  listxattr 194/11  llistxattr 195/12  flistxattr 196/13
    removexattr 197/14  lremovexattr 198/15  fremovexattr 199/16
""")
_MEMORY = _table("""
    brk 12/214  mmap 9/222  munmap 11/215  mremap 25/216  mprotect 10/226  msync 26/227  mincore 27/232
    madvise 28/233  mlock 149/228  mlock2 325/284  mlockall 151/230  munlock 150/229  munlockall 152/231
    mseal 462/462  pkey_alloc 330/289  pkey_free 331/290  pkey_mprotect 329/288  membarrier 324/283
    mbind 237/235  get_mempolicy 239/236  set_mempolicy 238/237  set_mempolicy_home_node 450/450
""")
_PROCESSES = _table("""
    fork 57/-  vfork 58/-  execve 59/221  execveat 322/281  exit 60/93  exit_group 231/94  wait4 61/260
    waitid 247/95  getpid 39/172  gettid 186/178  getppid 110/173  getpgid 121/155  getpgrp 111/-
    setpgid 109/154  getsid 124/156  setsid 112/157  set_tid_address 218/96  set_robust_list 273/99
    rseq 334/293  futex 202/98  futex_waitv 449/449  futex_wait 455/455  futex_wake 454/454
    futex_requeue 456/456  restart_syscall 219/128  arch_prctl 158/-  sched_yield 24/124
    sched_getaffinity 204/123  sched_getattr 315/275  sched_getparam 143/121  sched_getscheduler 145/120
    sched_get_priority_max 146/125  sched_get_priority_min 147/126  sched_rr_get_interval 148/127
    getpriority 140/141  ioprio_get 252/31  getcpu 309/168  getrlimit 97/163  setrlimit 160/164
    getrusage 98/165  times 100/153  pidfd_open 434/434
""")
_SIGNALS = _table("""
    kill 62/129  tkill 200/130  tgkill 234/131  pidfd_send_signal 424/424  rt_sigaction 13/134
    rt_sigprocmask 14/135  rt_sigpending 127/136  rt_sigqueueinfo 129/138  rt_tgsigqueueinfo 297/240
    rt_sigreturn 15/139  rt_sigsuspend 130/133  rt_sigtimedwait 128/137  sigaltstack 131/132  signalfd 282/-
    signalfd4 289/74  pause 34/-
""")
_USERS = _table("""
    getuid 102/174  geteuid 107/175  getresuid 118/148  getgid 104/176  getegid 108/177  getresgid 120/150
    getgroups 115/158  setuid 105/146  setreuid 113/145  setresuid 117/147  setfsuid 122/151  setgid 106/144
    setregid 114/143  setresgid 119/149  setfsgid 123/152  setgroups 116/159  capget 125/90  capset 126/91
    seccomp 317/277  landlock_create_ruleset 444/444  landlock_add_rule 445/445  landlock_restrict_self 446/446
""")
_TIME = _table("""
    time 201/-  gettimeofday 96/169  clock_gettime 228/113  clock_getres 229/114  nanosleep 35/101
    clock_nanosleep 230/115  alarm 37/-  getitimer 36/102  setitimer 38/103  timer_create 222/107
    timer_settime 223/110  timer_gettime 224/108  timer_getoverrun 225/109  timer_delete 226/111
    timerfd_create 283/85  timerfd_settime 286/86  timerfd_gettime 287/87
""")
_EVENTS = _table("""
    poll 7/-  ppoll 271/73  select 23/-  pselect6 270/72  epoll_create 213/-  epoll_create1 291/20
    epoll_ctl 233/21  epoll_wait 232/-  epoll_pwait 281/22  epoll_pwait2 441/441  eventfd 284/-  eventfd2 290/19
    inotify_init 253/-  inotify_init1 294/26  inotify_add_watch 254/27  inotify_rm_watch 255/28
""")
_SOCKETS = _table("""
    socketpair 53/199  bind 49/200  listen 50/201  accept 43/202  accept4 288/242  connect 42/203
    getsockname 51/204  getpeername 52/205  getsockopt 55/209  setsockopt 54/208  shutdown 48/210  sendto 44/206
    sendmsg 46/211  sendmmsg 307/269  recvfrom 45/207  recvmsg 47/212  recvmmsg 299/243
""")
_SYSTEM = _table("""
    uname 63/160  sysinfo 99/179  getrandom 318/278
""")

ALLOWED: Table = {
    **_FILES,
    **_PATHS,
    **_MEMORY,
    **_PROCESSES,
    **_SIGNALS,
    **_USERS,
    **_TIME,
    **_EVENTS,
    **_SOCKETS,
    **_SYSTEM,
}

KILLED = _table("""
    ptrace 101/117  process_vm_readv 310/270  process_vm_writev 311/271  process_madvise 440/440
    pidfd_getfd 438/438  kcmp 312/272  mount 165/40  umount2 166/39  pivot_root 155/41  chroot 161/51
    open_tree 428/428  move_mount 429/429  fsopen 430/430  fsconfig 431/431  fsmount 432/432  fspick 433/433
    mount_setattr 442/442  setns 308/268  kexec_load 246/104  kexec_file_load 320/294  init_module 175/105
    finit_module 313/273  delete_module 176/106  bpf 321/280  perf_event_open 298/241  add_key 248/217
    request_key 249/218  keyctl 250/219  userfaultfd 323/282  name_to_handle_at 303/264
    open_by_handle_at 304/265  acct 163/89  swapon 167/224  swapoff 168/225  reboot 169/142  iopl 172/-
    ioperm 173/-
""")
"""No honest program makes them: they end the process."""

REFUSED = _table("""
    unshare 272/97  personality 135/92  memfd_create 319/279  memfd_secret 447/447  shmget 29/194  msgget 68/186
    semget 64/190  mq_open 240/180  syslog 103/116  fanotify_init 300/262  modify_ldt 154/-
    io_uring_setup 425/425  io_uring_enter 426/426  io_uring_register 427/427  process_mrelease 448/448
""")
"""A library may try them and does without (EPERM); process_mrelease, because a pidfd does not say whose it is."""

OF_THE_HOST = frozenset(
    {
        *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
        *("utime", "utimes", "futimesat", "utimensat"),
        *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
        *("inotify_add_watch", "socket"),
    }
)
"""Refused too where programs are on the host's own file system and network: Landlock does not judge them."""

CHECKED = _table("""
    clone 56/220  ioctl 16/29  prctl 157/167  socket 41/198  prlimit64 302/261  sched_setaffinity 203/122
    sched_setattr 314/274  sched_setparam 142/118  sched_setscheduler 144/119  migrate_pages 256/238
    move_pages 279/239  setpriority 141/140  ioprio_set 251/30
""")
"""Decided by their arguments, in `seccomp.py`."""
