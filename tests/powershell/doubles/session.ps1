# Runs many scripts in one process, for tests: the engine needs half a second to start, a script here a tenth of it. Each
# runs in a session of its own, after the doubles, so that nothing is left of the one before. A request is a line of JSON
# in the file that is named, its answer a line on the standard output that begins with "answer: ". The standard input is
# empty: a script that looks there must find nothing.
#   environment  variables of this process from now on
#   script       the file to run; or command, the text of -Command
#   arguments    of the script
#   lines        the lines of its standard input
#   step         whether it ends by "exit" (the worker scripts do): then that is its exit code
#   fail         a command and which of its calls fails, {name, at}: a cmdlet writes an error, a program ends with exit code 77
#   watch        names of commands whose calls are told
param([string]$Requests)
$ErrorActionPreference = 'Stop'
$reader = New-Object System.IO.StreamReader $Requests
$answers = [Console]::Out

# The mutex of winlab's changes, in each machine one of its own: a file that is there while somebody has it. "left" in it:
# its owner ended without a word
[NoRunspaceAffinity()]
class MutexDouble {
    [string]$File
    MutexDouble([bool]$Owned, [string]$Name) { $this.File = "$env:WINLAB_MACHINE/mutex-$($Name -replace '\W', '-')" }
    [bool] WaitOne([int]$Limit) {
        if (-not [System.IO.FileInfo]::new($this.File).Exists) { return $true }
        $text = [System.IO.StreamReader]::new($this.File).ReadToEnd().Trim()
        # so many waits are in vain
        if ($text -match '^\d+$' -and [int]$text -gt 0) {
            $writer = [System.IO.FileInfo]::new($this.File).CreateText()
            $writer.Write([int]$text - 1)
            $writer.Dispose()
            return $false
        }
        [System.IO.FileInfo]::new($this.File).Delete()
        if ($text -eq 'left') { throw [System.Threading.AbandonedMutexException]::new() }
        return $true
    }
}

# The doubles in a session of its own; as text, since a block would run in the session that it came from
$open = @'
    $engine = New-Object Winlab.PowerShell.Host
    $engine.Runspace = [System.Management.Automation.Runspaces.RunspaceFactory]::CreateRunspace($engine, [Winlab.PowerShell.Program]::State())
    $engine.Runspace.Open()
    $made = [powershell]::Create()
    $made.Runspace = $engine.Runspace
    $made.AddScript("`$global:TypeDoubles = `$args[0]; . '$env:WINLAB_PS_PRELUDE'").AddArgument($types).Invoke() | Out-Null
    if ($made.HadErrors) { throw "the doubles: $($made.Streams.Error)" }
    $made.Commands.Clear()
    $made
'@
$run = @'
    param($request, $types, $open)
    $global:ErrorActionPreference = 'Continue'
    # A scheduled task is done before its starter goes on: so no test depends on which of them is quicker
    $global:StartTask = {
        param($name, $file)
        $own = & ([scriptblock]::Create($open))
        $own.AddScript('& $args[0] *>&1 | Out-Default').AddArgument($file) | Out-Null
        if (-not $own.BeginInvoke().AsyncWaitHandle.WaitOne(600000)) { throw "The task $name does not end." }
        $own.Runspace.Dispose()
        $own.Dispose()
    }.GetNewClosure()
    $global:Calls = New-Object 'System.Collections.Generic.List[string]'
    if ($request.watch -or $request.fail) {
        $calls = $global:Calls
        # as a cmdlet does it: whether that ends the script is -ErrorAction's and the preference's matter
        $refusal = {
            [CmdletBinding()] param([Parameter(ValueFromRemainingArguments)]$All, [Parameter(ValueFromPipeline)]$InputObject)
            process { Write-Error 'it failed on purpose' }
        }
        $counts = @{}
        $ExecutionContext.InvokeCommand.PreCommandLookupAction = {
            param($name, $look)
            if ($name -like '*.exe') { $name = ($name -split '[\\/]')[-1] }
            if ($request.watch -contains $name) { $calls.Add($name) }
            if (-not $request.fail -or $name -ne $request.fail.name) { return }
            $counts[$name]++
            if ($counts[$name] -ne $request.fail.at) { return }
            $look.CommandScriptBlock = if ($name -like '*.exe') { { 'it failed on purpose'; $global:LASTEXITCODE = 77 } } else { $refusal }
            $look.StopSearch = $true
        }.GetNewClosure()
    }
    $global:LASTEXITCODE = 0
    $code = 0
    $arguments = @{}
    if ($request.arguments) { foreach ($row in $request.arguments.PSObject.Properties) { $arguments[$row.Name] = $row.Value } }
    try {
        if ($request.command) { & ([scriptblock]::Create($request.command)) | Out-Default }
        elseif ($null -ne $request.lines) { $request.lines | & $request.script @arguments | Out-Default }
        else { & $request.script @arguments | Out-Default }
        if ($request.step) { $code = $global:LASTEXITCODE }
    } catch {
        [Console]::Error.WriteLine("$_")
        $code = 1
    }
    $ExecutionContext.InvokeCommand.PreCommandLookupAction = $null
    $code
'@

. "$env:WINLAB_WINDOWS/types.ps1"
$types = $global:TypeDoubles
$types['System.Threading.Mutex'] = [MutexDouble]
while ($null -ne ($line = $reader.ReadLine())) {
    $request = ConvertFrom-Json -InputObject $line
    if ($request.environment) { foreach ($row in $request.environment.PSObject.Properties) { Set-Item -LiteralPath "env:$($row.Name)" -Value $row.Value } }
    $out = New-Object System.IO.StringWriter
    $err = New-Object System.IO.StringWriter
    [Console]::SetOut($out)
    [Console]::SetError($err)
    $path = $env:PATH
    $code = 70
    $calls = @()
    try {
        $session = & ([scriptblock]::Create($open))
        $told = $session.AddScript($run).AddArgument($request).AddArgument($types).AddArgument($open).Invoke()
        $code = $told[-1]
        foreach ($one in $session.Streams.Error) { $err.WriteLine("$one") }
        $calls = @($session.Runspace.SessionStateProxy.GetVariable('Calls'))
        $session.Runspace.Dispose()
        $session.Dispose()
    } catch {
        $err.WriteLine("session: $_ $($_.ScriptStackTrace)")
    }
    $env:PATH = $path
    [Console]::SetOut($answers)
    $answer = @{ code = $code; out = "$out"; err = "$err"; calls = $calls }
    $answers.WriteLine("answer: $(ConvertTo-Json -InputObject $answer -Compress -Depth 3)")
    $answers.Flush()
}
