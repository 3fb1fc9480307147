# Runs many scripts in one process of the engine: resident.py starts it, and asks on a socket. Each script runs as in
# its own process, because the engine's own Main runs it: with its own runspace, fakes, environment, folder and standard
# streams. Everything else that would end with a process is restored after each script.
# A request is a line of JSON: words (the engine's arguments), environment, folder, streams (the files for input, output
# and errors). The answers are the line "begun", and then the exit code. If the caller goes away before that, this ends.
param([string]$Socket, [int]$Idle)
$ErrorActionPreference = 'Stop'
$hidden = [System.Reflection.BindingFlags]'NonPublic, Static'
$full = 250MB # of memory: with more, it ends, and a new process replaces it

# .NET can't do this: replace the standard streams, which programs inherit
$module = [System.Reflection.Emit.AssemblyBuilder]::DefineDynamicAssembly('libc', 'Run').DefineDynamicModule('libc')
$type = $module.DefineType('Libc', 'Public')
foreach ($row in @('open', [string], [int]), @('dup2', [int], [int]), @('close', [int]), @('kill', [int], [int])) {
    $name, $takes = $row
    $made = $type.DefinePInvokeMethod($name, 'libc', 'Public, Static, PinvokeImpl', 'Standard', [int], [type[]]$takes, 'Winapi', 'Ansi')
    $made.SetImplementationFlags('PreserveSig')
}
$libc = $type.CreateType()
function Connect-Stream([string[]]$To) {
    for ($at = 0; $at -lt 3; $at++) {
        $file = $libc::open($To[$at], [int]($at -gt 0)) # 0: for reading, 1: for writing
        if ($file -lt 0 -or $libc::dup2($file, $at) -lt 0) { throw "The stream $($To[$at]) can't be opened." }
        $libc::close($file) | Out-Null
    }
    foreach ($field in [Console].GetFields($hidden)) {
        if ($field.Name -in 's_in', 's_out', 's_error', 's_inputEncoding', 's_outputEncoding') { $field.SetValue($null, $null) }
        if ($field.Name -in 's_isOutTextWriterRedirected', 's_isErrorTextWriterRedirected') { $field.SetValue($null, $false) }
    }
}
function Start-Main([string[]]$Words) {
    $expression = [System.Linq.Expressions.Expression]
    $call = $expression::Call([Winlab.PowerShell.Program].GetMethod('Main'), $expression::Constant($Words))
    $run = $expression::Lambda([Func[int]], $call, [System.Linq.Expressions.ParameterExpression[]]@()).Compile()
    # LongRunning: its own thread, which ends with it
    return [System.Threading.Tasks.Task]::Factory.StartNew(
        $run, [System.Threading.CancellationToken]::None, 'LongRunning', [System.Threading.Tasks.TaskScheduler]::Default)
}

$listener = New-Object System.Net.Sockets.Socket (
    [System.Net.Sockets.AddressFamily]::Unix), ([System.Net.Sockets.SocketType]::Stream), ([System.Net.Sockets.ProtocolType]::Unspecified)
$listener.Bind((New-Object System.Net.Sockets.UnixDomainSocketEndPoint $Socket))
$listener.Listen(8)
$goes = $false
while (-not $goes -and $listener.Poll([TimeSpan]::FromSeconds($Idle), 'SelectRead')) {
    $caller = $listener.Accept()
    $stream = New-Object System.Net.Sockets.NetworkStream $caller
    $line = [System.IO.StreamReader]::new($stream).ReadLine()
    if ($line) {
        $request = ConvertFrom-Json -InputObject $line
        foreach ($name in @([Environment]::GetEnvironmentVariables().Keys)) { [Environment]::SetEnvironmentVariable($name, [NullString]::Value) }
        foreach ($row in $request.environment.PSObject.Properties) { [Environment]::SetEnvironmentVariable($row.Name, $row.Value) }
        [Environment]::CurrentDirectory = $request.folder
        Connect-Stream $request.streams
        $stream.Write([System.Text.Encoding]::ASCII.GetBytes("begun`n"))
        $script = Start-Main $request.words
        # the caller sends nothing more: if there is something to read, it has gone away
        while (-not ([System.Threading.Tasks.Task]::WaitAny([System.Threading.Tasks.Task[]]@($script), 200) -eq 0)) {
            if ($caller.Poll(0, 'SelectRead')) { $libc::kill(0, 9) | Out-Null } # with everything that the script has started
        }
        if ($script.IsFaulted) { [Environment]::FailFast("$($script.Exception)") } # as it would end its own process
        $code = $script.Result
        Connect-Stream '/dev/null', '/dev/null', '/dev/null'
        [Environment]::CurrentDirectory = '/'
        [Winlab.PowerShell.HostUI]::Interactive = $true
        [Winlab.PowerShell.HostUI]::Transcript = $null
        # closes what the script has left open
        $script = $null
        [GC]::Collect()
        [GC]::WaitForPendingFinalizers()
        # if the script has left something running, this process must end, too
        $goes = [runspace].GetProperty('RunspaceList', $hidden).GetValue($null).Count -gt 1 -or [Environment]::WorkingSet -gt $full
        $stream.Write([System.Text.Encoding]::ASCII.GetBytes("$code`n"))
    }
    $stream.Dispose()
    $caller.Dispose()
}
[Environment]::Exit(0)
